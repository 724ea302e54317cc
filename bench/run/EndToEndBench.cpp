// SPDX-License-Identifier: Apache-2.0
//
// Whole iterations on the host device, in wall time, against what bounds them:
//
//   bench_run [--json FILE] [--iterations N] [--compute-core N] [--transfer-core N] [--filter TEXT]
//
//   decode         an eager plan at intervals 1, 2, 4, 8 over a paced link, one sequence
//                  ratio = iteration / max(resident iteration, h2d bytes / bandwidth)              at most 1.05
//   compute-bound  a prefill of 64 tokens, and decode of 32 sequences, with half the layers offloaded
//                  ratio = iteration / resident iteration                                          at most 1.05
//
// The resident plan and the offloaded one are loaded side by side, their lanes pinned to the same cores, and take turns
// of a few iterations, so that whatever else the machine does meets both. An iteration's time is the gap between two
// iterations' tokens, as a reader of tokens sees it: what wrap-around copies behind the tokens is part of the next gap.
// Every turn's first iterations are left out (caches, and slots that hold nothing yet).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/Lanes.h"
#include "compiler/Compile.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightSource.h"

namespace headrace {
namespace {

constexpr int kTurn = 6;   // iterations measured in a turn
constexpr int kWarmUp = 2; // before them
constexpr int64_t kBatch = 32;
constexpr int64_t kPrefill = 64;
constexpr int64_t kContext = 128;
constexpr double kTarget = 1.05;

struct Settings {
  std::string json, filter;
  int iterations = 30;
  host::HostOptions device;
};

[[noreturn]] void fail(const std::string &message) {
  std::fprintf(stderr, "bench_run: %s\n", message.c_str());
  std::exit(1);
}
template <typename T> T take(absl::StatusOr<T> value) {
  if (!value.ok())
    fail(std::string(value.status().message()));
  return *std::move(value);
}
void check(const absl::Status &status) {
  if (!status.ok())
    fail(std::string(status.message()));
}

// 16 layers of 11.3 M parameters and a small vocabulary: 363 MB of layers in BF16.
model::ModelSpec shape() {
  model::ModelSpec spec{
      .name = "llama-16x1024", .layers = 16, .hidden = 1024, .heads = 16, .kvHeads = 4, .headDim = 64};
  spec.intermediate = 2816;
  spec.vocab = 4096;
  spec.maxPositions = 2048;
  spec.rope.enabled = true;
  spec.dtype = model::DType::BF16;
  return spec;
}

// Fills each unit once, and copies it from then on: the plans of this program differ in where weights lie, not in what
// they are.
class KeptWeights final : public model::WeightSource {
public:
  absl::Status fill(const model::Unit &unit, model::MatrixOrder order, absl::Span<std::byte> out) const override {
    std::vector<std::byte> &kept = kept_[{static_cast<int>(unit.role), unit.layer}];
    if (kept.empty()) {
      kept.resize(out.size());
      if (absl::Status status = source_->fill(unit, order, absl::MakeSpan(kept)); !status.ok())
        return status;
    }
    std::copy(kept.begin(), kept.end(), out.begin());
    return absl::OkStatus();
  }

private:
  std::unique_ptr<model::WeightSource> source_ = model::syntheticWeights(1);
  mutable std::map<std::pair<int, int64_t>, std::vector<std::byte>> kept_;
};

// What an iteration of one of the three workloads brings.
struct Load {
  const char *name = "";
  int64_t sequences = 1, tokens = 1; // tokens of each sequence
  int64_t firstPosition = 0;
};

// A plan on a device, and one workload on it again and again.
class Player {
public:
  Player(plan::Plan plan, const Settings &settings, double bandwidth, const KeptWeights &weights, const Load &load)
      : plan_(std::make_unique<plan::Plan>(std::move(plan))), device_(host::makeHostDevice(settings.device)),
        load_(load) {
    const core::DeviceOptions options{.linkBandwidth = bandwidth, .trace = true};
    runtime_ = take(core::Runtime::load(*plan_, *device_, options, &weights, {}));
    variant_ = take(runtime_->choose(load.sequences * load.tokens, load.sequences, load.firstPosition + load.tokens));
    const int64_t blocksEach = (kContext + plan_->blockTokens - 1) / plan_->blockTokens;
    blocks_.resize(static_cast<size_t>(load.sequences * blocksEach));
    for (size_t i = 0; i < blocks_.size(); ++i)
      blocks_[i] = static_cast<int32_t>(i + 1);
    tokens_.resize(static_cast<size_t>(load.sequences * load.tokens));
    for (size_t i = 0; i < tokens_.size(); ++i)
      tokens_[i] = static_cast<int32_t>(i * 37 % static_cast<size_t>(plan_->model->vocab));
    for (int64_t s = 0; s < load.sequences; ++s)
      rows_.push_back({.tokens = absl::MakeConstSpan(tokens_).subspan(static_cast<size_t>(s * load.tokens),
                                                                      static_cast<size_t>(load.tokens)),
                       .firstPosition = load.firstPosition,
                       .blocks = absl::MakeConstSpan(blocks_).subspan(static_cast<size_t>(s * blocksEach),
                                                                      static_cast<size_t>(blocksEach)),
                       .sample = true,
                       .requestSlot = static_cast<int32_t>(s)});
  }

  const plan::Plan &plan() const { return *plan_; }
  const plan::Variant &variant() const { return plan_->variants[variant_]; }
  const plan::Schedule &schedule() const { return plan_->schedules[variant().schedule]; }

  // A turn: warms up, then appends kTurn gaps to `gapsNs`.
  void play() {
    int64_t previousNs = 0;
    const int64_t stalledBefore = device_->counters().stallNs;
    for (int i = 0; i < kWarmUp + kTurn; ++i) {
      check(core::writeMeta(plan_->metaLayout, plan_->blockTokens, rows_, device_->meta()));
      check(runtime_->launch(variant_));
      (void)take(runtime_->awaitTokens());
      const int64_t seenNs = device_->tokensVisibleNs(runtime_->launched());
      if (i >= kWarmUp)
        gapsNs.push_back(seenNs - previousNs);
      previousNs = seenNs;
    }
    check(device_->drain());
    stallNs += device_->counters().stallNs - stalledBefore;
    int64_t ns = 0;
    for (size_t step = 0; step < schedule().steps.size(); ++step)
      if (schedule().steps[step].lane == plan::Lane::Compute)
        ns += device_->lastTimes()[step].endNs - device_->lastTimes()[step].startNs;
    computeNs.push_back(ns);
    lastGapNs.push_back(gapsNs.back());
  }

  std::vector<int64_t> gapsNs;
  std::vector<int64_t> computeNs,
      lastGapNs; // of each turn's last iteration: sum of the compute lane's steps, and the gap
  int64_t stallNs = 0;

private:
  std::unique_ptr<plan::Plan> plan_;
  std::unique_ptr<core::Device> device_;
  Load load_;
  std::unique_ptr<core::Runtime> runtime_;
  uint32_t variant_ = 0;
  std::vector<int32_t> blocks_, tokens_;
  std::vector<core::SequenceRows> rows_;
};

double median(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  return static_cast<double>(values[values.size() / 2]);
}

double least(const std::vector<int64_t> &values) {
  return static_cast<double>(*std::min_element(values.begin(), values.end()));
}

class Bench {
public:
  explicit Bench(const Settings &settings) : settings_(settings) {
    hardware_ = take(model::openHardware("host"));
    hardware_.linkEfficiency = 1;
  }

  void run() {
    std::printf("%-44s %9s %9s %9s %9s %7s %7s %9s %7s %7s\n", "", "measured", "resident", "link", "bound", "ratio",
                "best", "predicted", "meas/pr", "outside");
    const Load decode{.name = "decode 1", .firstPosition = kContext - 1};
    for (const double bandwidth : {2e9, 1e9, 0.5e9})
      for (const int64_t interval : {1, 2, 4, 8})
        compare("decode", decode, interval, bandwidth, true);
    compare("compute-bound", {.name = "prefill 64", .tokens = kPrefill}, 2, 2e9, false);
    compare("compute-bound", {.name = "decode 32", .sequences = kBatch, .firstPosition = kContext - 1}, 2, 2e9, false);
    if (settings_.json.empty())
      return;
    std::ofstream out(settings_.json);
    out << nlohmann::json{{"benchmarks", results_}}.dump(1) << "\n";
    if (!out.flush())
      fail(settings_.json + ": cannot be written");
  }

private:
  plan::Plan compile(const Load &load, int64_t interval, double bandwidth) {
    compiler::CompileRequest request;
    request.model = shape();
    request.modelHash = "synthetic";
    request.hardware = hardware_;
    request.hardware.h2dBandwidth = request.hardware.d2hBandwidth = bandwidth;
    request.hardware.duplexBandwidth = 2 * bandwidth;
    request.goal.deviceMemory = uint64_t{8} << 30;
    request.goal.batch = load.sequences;
    request.goal.context = kContext;
    request.policy.none = interval == 0;
    if (interval != 0)
      request.policy.interval = interval;
    request.policy.offloadEmbedding = request.policy.offloadHead = model::AutoOnOff::Off;
    request.buckets = {
        .newTokens = {load.sequences * load.tokens}, .sequences = {load.sequences}, .contexts = {kContext}};
    return take(compiler::compile(request));
  }

  // `linkBounds`: the link may be what bounds an iteration; else it is to be hidden whatever it costs.
  void compare(const char *group, const Load &load, int64_t interval, double bandwidth, bool linkBounds) {
    char name[96];
    std::snprintf(name, sizeof(name), "%s/%s/interval %d/%.1f GB/s", group, load.name, static_cast<int>(interval),
                  bandwidth * 1e-9);
    if (std::string_view(name).find(settings_.filter) == std::string_view::npos)
      return;
    Player resident(compile(load, 0, bandwidth), settings_, bandwidth, weights_, load);
    Player offloaded(compile(load, interval, bandwidth), settings_, bandwidth, weights_, load);
    for (int turn = 0; turn * kTurn < settings_.iterations; ++turn) {
      resident.play();
      offloaded.play();
    }
    const double measured = median(offloaded.gapsNs), alone = median(resident.gapsNs);
    const double bytes = static_cast<double>(plan::linkBytes(offloaded.schedule()).h2d);
    const double link = bytes / bandwidth * 1e9;
    const double bound = linkBounds ? std::max(alone, link) : alone;
    // Of the fastest iterations, which whatever else runs on the machine has disturbed least.
    const double bestAlone = least(resident.gapsNs);
    const double best = least(offloaded.gapsNs) / (linkBounds ? std::max(bestAlone, link) : bestAlone);
    const double predicted = static_cast<double>(offloaded.variant().predictedNs);
    // What an iteration takes beside its kernels, where nothing is waited for.
    const double outside = 1 - median(resident.computeNs) / median(resident.lastGapNs);
    const double kernelsBeside = median(offloaded.computeNs) / median(resident.computeNs);
    const double ms = 1e-6;
    std::printf("%-44s %6.2f ms %6.2f ms %6.2f ms %6.2f ms %7.3f %7.3f %6.2f ms %7.2f %6.2f%%\n", name, measured * ms,
                alone * ms, link * ms, bound * ms, measured / bound, best, predicted * ms, measured / predicted,
                outside * 100);
    std::fflush(stdout);
    results_.push_back(
        {{"name", name},
         {"iterations", offloaded.gapsNs.size()},
         {"real_time", measured * ms},
         {"time_unit", "ms"},
         {"resident_ms", alone * ms},
         {"link_ms", link * ms},
         {"h2d_bytes", bytes},
         {"bound", link > alone && linkBounds ? "link" : "compute"},
         {"bound_ms", bound * ms},
         {"ratio", measured / bound},
         {"best_ratio", best},
         {"target", kTarget},
         {"predicted_ms", predicted * ms},
         {"measured_over_predicted", measured / predicted},
         {"resident_predicted_ms", static_cast<double>(resident.variant().predictedNs) * ms},
         {"share_outside_kernels", outside},
         {"kernels_over_resident_kernels", kernelsBeside},
         {"stall_ms_per_iteration", static_cast<double>(offloaded.stallNs) * ms /
                                        static_cast<double>(offloaded.gapsNs.size() / kTurn * (kTurn + kWarmUp))}});
  }

  const Settings &settings_;
  model::Hardware hardware_;
  KeptWeights weights_;
  nlohmann::json results_ = nlohmann::json::array();
};

int usage() {
  std::fprintf(stderr, "usage: bench_run [--json FILE] [--iterations N >= 6] [--compute-core N] [--transfer-core N] "
                       "[--filter TEXT]\n");
  return 2;
}

int main(int argc, char **argv) {
  Settings settings;
  bench::pinToFirstCores(settings.device);
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    constexpr std::string_view kOut = "--benchmark_out=";
    if (flag.starts_with(kOut)) {
      settings.json = flag.substr(kOut.size());
      continue;
    }
    if (flag.starts_with("--benchmark_")) // for the others that are run beside this one
      continue;
    if (i + 1 == argc)
      return usage();
    const char *value = argv[++i];
    if (flag == "--json")
      settings.json = value;
    else if (flag == "--filter")
      settings.filter = value;
    else if (flag == "--iterations")
      settings.iterations = std::atoi(value);
    else if (!bench::takeLaneFlag(flag, value, settings.device))
      return usage();
  }
  if (settings.iterations < kTurn)
    return usage();
  const host::AwakeCores awake = bench::askLowLatency("bench_run", settings.device);
  Bench(settings).run();
  return 0;
}

} // namespace
} // namespace headrace

int main(int argc, char **argv) { return headrace::main(argc, argv); }
