// SPDX-License-Identifier: Apache-2.0
//
// Whether latency objectives that the compiler admits hold in wall time, on the host device with one device on its bus:
//
//   bench_slo [--json FILE [--resume]] [--cases 200] [--seed 1] [--seconds 5400] [--iterations 600] [--model TEXT]
//             [--compute-core N] [--transfer-core N]
//
//   model:  record (iterations)  ->  link: record (copies)  ->  case: SLO = factor x median of the resident plan, just
//           measured  ->  compile with the record as costs  ->  resident and compiled plan in turns  ->  held?
//
// A case that is unmeasured (Trial.h says when) is tried again once all others have been, as long as there is time:
// what disturbs a machine comes and goes. The exit status is 1 where a target is not met (Results.h).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/Lanes.h"
#include "bench/slo/Cases.h"
#include "bench/slo/Player.h"
#include "bench/slo/Profile.h"
#include "bench/slo/Results.h"
#include "bench/slo/Trial.h"

namespace headrace::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kFastestLink = 2e9;        // bytes/s: a twentieth of what a core reads, as a link is of a GPU's memory
constexpr double kSlowestLinkSeconds = 0.1; // a layer's: slower than any that is drawn

struct Settings {
  std::string json, model;
  Results::Run run;
  bool resume = false;
  double seconds = 5400;
  host::HostOptions device;
};

// One of caseModels() with what has been measured of it on this machine.
class ProfiledModel {
public:
  ProfiledModel(size_t index, const model::ModelSpec &spec, const model::Hardware &host, const Settings &settings,
                cost::MeasuredSpread &widest)
      : index_(index), spec_(spec), profile_(spec, host, settings.device, weights, widest),
        layerBytes_(model::layoutWeights(spec).layerBytes(0)),
        // The slowest link is known once a layer has been timed; a first guess of it measures every pair.
        first_(costsOf(profile_.over(static_cast<double>(layerBytes_) / kSlowestLinkSeconds))) {}

  Drawn draw(size_t count, uint64_t seed) {
    std::mt19937_64 random(seed * 1000 + index_);
    const double layerNs = middle(first_.layerBounds({.tokens = 1, .sequences = 1, .context = 128}));
    Drawn drawn{.links = drawLinks(layerBytes_, layerNs, kFastestLink, random), .cases = {}};
    drawn.cases = drawCases(index_, count, random, [&](const Case &c) {
      const cost::Bucket bucket{.tokens = c.tokens(), .sequences = c.batch, .context = c.context};
      const double layer = middle(first_.layerBounds(bucket));
      return Expected{.residentNs = layer * static_cast<double>(spec_.layers) + middle(first_.restBounds(bucket)),
                      .ratio = static_cast<double>(layerBytes_) / drawn.links[c.link] * 1e9 / layer};
    });
    return drawn;
  }

  model::Hardware hardware(double bandwidth) const { return profile_.hardware(bandwidth); }

  const cost::RecordCostModel &costs(double bandwidth) {
    auto found = costs_.find(bandwidth);
    if (found == costs_.end()) {
      found = costs_.emplace(bandwidth, costsOf(profile_.over(bandwidth))).first;
      const cost::Interference seen = found->second.interference();
      std::fprintf(stderr, "%s over %.2f GB/s: compute beside copies x %.3f, start of a copy %.0f us, slowest x %.3f\n",
                   spec_.name.c_str(), bandwidth * 1e-9, seen.computeFactor, static_cast<double>(seen.wakeNs) * 1e-3,
                   found->second.slowestFactor());
    }
    return found->second;
  }

  const KeptWeights weights;

private:
  cost::RecordCostModel costsOf(cost::Record record) const {
    return take(cost::RecordCostModel::create(std::move(record), spec_, "record"));
  }
  static double middle(const cost::TimeBounds &bounds) { return (bounds.lowerNs + bounds.upperNs) / 2; }

  size_t index_;
  const model::ModelSpec &spec_;
  Profile profile_;
  uint64_t layerBytes_;
  cost::RecordCostModel first_;
  std::map<double, cost::RecordCostModel> costs_; // by bandwidth
};

class Bench {
public:
  explicit Bench(const Settings &settings)
      : settings_(settings), host_(take(model::openHardware("host"))), models_(caseModels()), profiled_(models_.size()),
        results_(settings.run, settings.json, settings.resume), before_(results_.seconds) {}

  int run() {
    printTrialNames();
    while (elapsed() < settings_.seconds && tryAll()) {
    }
    results_.seconds = before_ + elapsed();
    results_.write();
    std::printf("%s\n", results_.summary().dump(1).c_str());
    return results_.targetsAreMet() ? 0 : 1;
  }

private:
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  // Each case that is not done, once. Whether any is left.
  bool tryAll() {
    std::vector<size_t> chosen;
    for (size_t m = 0; m < models_.size(); ++m)
      if (models_[m].name.find(settings_.model) != std::string::npos)
        chosen.push_back(m);
    size_t first = 0;
    bool left = false;
    for (size_t i = 0; i < chosen.size(); ++i) {
      const size_t count = (settings_.run.cases - first + chosen.size() - i - 1) / (chosen.size() - i);
      left |= tryModel(chosen[i], first, count);
      first += count;
    }
    return left;
  }

  bool tryModel(size_t index, size_t first, size_t count) {
    const model::ModelSpec &spec = models_[index];
    const Drawn *drawn = results_.drawn(spec.name);
    bool left = false;
    for (size_t i = 0; i < count; ++i) {
      if (results_.isDone(first + i))
        continue;
      if (elapsed() > settings_.seconds)
        return true;
      if (!profiled_[index])
        profiled_[index] = std::make_unique<ProfiledModel>(index, spec, host_, settings_, widest_);
      if (drawn == nullptr) {
        Drawn made = profiled_[index]->draw(count, settings_.run.seed);
        for (size_t c = 0; c < count; ++c)
          made.cases[c].number = first + c;
        results_.draw(spec.name, std::move(made));
        drawn = results_.drawn(spec.name);
      }
      left |= !tryCase(*profiled_[index], spec, drawn->cases[i], drawn->links[drawn->cases[i].link]);
    }
    return left;
  }

  // Whether it is done.
  bool tryCase(ProfiledModel &model, const model::ModelSpec &spec, const Case &c, double link) {
    const model::Hardware hardware = model.hardware(link);
    const Trial trial{.of = c,
                      .spec = spec,
                      .hardware = hardware,
                      .costs = model.costs(link),
                      .weights = model.weights,
                      .device = settings_.device,
                      .iterations = settings_.run.iterations};
    nlohmann::json row = trial.run();
    std::fflush(stdout);
    row["attempts"] = results_.attempts(c.number) + 1;
    results_.put(std::move(row));
    results_.seconds = before_ + elapsed();
    results_.write(); // a run that is cut has what it measured
    return results_.isDone(c.number);
  }

  const Settings &settings_;
  model::Hardware host_;
  std::vector<model::ModelSpec> models_;
  std::vector<std::unique_ptr<ProfiledModel>> profiled_; // by model, once a case of it is tried
  cost::MeasuredSpread widest_;                          // of all records so far
  Results results_;
  double before_; // seconds of earlier runs
  Clock::time_point start_ = Clock::now();
};

std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name"))
      return line.substr(line.find(':') + 2);
  return "unknown";
}

int usage() {
  std::fprintf(stderr,
               "usage: bench_slo [--json FILE [--resume]] [--cases N] [--seed N] [--seconds S] [--iterations N >= 100] "
               "[--model TEXT] [--compute-core N] [--transfer-core N]\n");
  return 2;
}

int main(int argc, char **argv) {
  Settings settings;
  settings.run.machine = processor();
  pinToFirstCores(settings.device);
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    constexpr std::string_view kOut = "--benchmark_out=";
    if (flag.starts_with(kOut)) {
      settings.json = flag.substr(kOut.size());
      continue;
    }
    if (flag.starts_with("--benchmark_")) // for the others that are run beside this one
      continue;
    if (flag == "--resume") {
      settings.resume = true;
      continue;
    }
    if (i + 1 == argc)
      return usage();
    const char *value = argv[++i];
    if (flag == "--json")
      settings.json = value;
    else if (flag == "--model")
      settings.model = value;
    else if (flag == "--cases")
      settings.run.cases = static_cast<size_t>(std::atoll(value));
    else if (flag == "--seed")
      settings.run.seed = static_cast<uint64_t>(std::atoll(value));
    else if (flag == "--seconds")
      settings.seconds = std::atof(value);
    else if (flag == "--iterations")
      settings.run.iterations = std::atoi(value);
    else if (!takeLaneFlag(flag, value, settings.device))
      return usage();
  }
  if (settings.run.iterations < 100 || settings.run.cases == 0 || (settings.resume && settings.json.empty()))
    return usage();
  const host::AwakeCores awake = askLowLatency("bench_slo", settings.device);
  return Bench(settings).run();
}

} // namespace
} // namespace headrace::bench

int main(int argc, char **argv) { return headrace::bench::main(argc, argv); }
