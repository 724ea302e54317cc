// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/compiler/PlacementSweep.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/cost/SelectN.h"
#include "runtime/model/ModelSpec.h"
#include "tests/support/SourceDir.h"

namespace headrace::compiler {
namespace {

template <typename T> T opened(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::exit(1);
  }
  return *std::move(value);
}

CompileRequest requestOf(const SearchCase &c, bool allBuckets) {
  const std::string examples = sourceDir() + "/examples/";
  CompileRequest request;
  request.model = opened(model::openModel(absl::StrCat(examples, "models/", c.model, ".toml"))).spec;
  request.hardware = opened(model::openHardware(absl::StrCat(examples, "hardware/", c.hardware, ".toml")));
  request.goal.deviceMemory = uint64_t{1} << 42;
  request.goal.batch = c.bucket.sequences;
  request.goal.context = c.bucket.context;
  if (allBuckets)
    return request;
  request.buckets = {.newTokens = {c.bucket.tokens}, .sequences = {c.bucket.sequences}, .contexts = {c.bucket.context}};
  return request;
}

// Positions of `count` among `layers`, evenly spread, shifted by phase / 4 of a gap.
bool inSpread(int64_t layer, int64_t layers, int64_t count, int64_t phase) {
  const auto upTo = [&](int64_t n) { return (4 * n * count + phase * layers) / (4 * layers); };
  return upTo(layer + 1) > upTo(layer);
}

} // namespace

std::string SearchCase::name() const {
  return absl::StrFormat("%s %s %s %d x %d at %.2f", model, hardware, decode ? "decode" : "prefill", bucket.sequences,
                         bucket.context, factor);
}

std::vector<SearchCase> searchCases(const std::vector<std::string> &hardware) {
  std::vector<SearchCase> cases;
  for (const std::string &device : hardware)
    for (const char *name : {"opt-6.7b", "opt-13b", "llama-3.1-8b", "qwen1.5-7b"})
      for (const auto &[bucket, decode] :
           {std::pair(cost::Bucket{1, 1, 512}, true), std::pair(cost::Bucket{8, 8, 1024}, true),
            std::pair(cost::Bucket{32, 32, 512}, true), std::pair(cost::Bucket{128, 128, 64}, true),
            std::pair(cost::Bucket{512, 4, 128}, false), std::pair(cost::Bucket{1024, 16, 64}, false),
            std::pair(cost::Bucket{2048, 4, 512}, false)})
        for (const double factor : {1.02, 1.1, 1.3, 1.5, 2.0, 3.0, 4.0})
          cases.push_back({name, device, bucket, decode, factor});
  return cases;
}

OpenedCase::OpenedCase(const SearchCase &c, bool allBuckets) : OpenedCase(requestOf(c, allBuckets), c, allBuckets) {}

OpenedCase::OpenedCase(CompileRequest request, const cost::Bucket &bucket, bool decode, double factor)
    : OpenedCase(std::move(request), SearchCase{"", "", bucket, decode, factor}, /*allBuckets=*/false) {}

OpenedCase::OpenedCase(CompileRequest request, const SearchCase &c, bool allBuckets)
    : request_(std::move(request)), target_(opened(resolve(request_))), layout_(model::layoutWeights(request_.model)),
      costs_(request_.model, request_.hardware, target_.activation, target_.kv), prices_(costs_) {
  search_.model = &*request_.model;
  search_.layout = &layout_;
  search_.target = &target_;
  search_.deviceKind = request_.hardware.kind;
  std::vector<BucketGoal> &goals = c.decode ? search_.decode : search_.mixed;
  goals = {{c.bucket, 0}};
  if (allBuckets) {
    search_.decode.clear();
    for (const cost::Bucket &bucket : target_.decode)
      search_.decode.push_back({bucket, 0});
    for (const cost::Bucket &bucket : target_.mixed)
      search_.mixed.push_back({bucket, 0});
  }
  problem_ = opened(placementProblem(search_, prices_));
  if (allBuckets) {
    size_t schedule = 0;
    for (std::vector<BucketGoal> *of : {&search_.decode, &search_.mixed}) {
      if (of->empty())
        continue;
      uint64_t slowest = 0;
      for (const algorithms::ScheduleTimes::Bucket &bucket : problem_.problem.schedules[schedule++].buckets)
        slowest = std::max(slowest, std::accumulate(bucket.computeNs.begin(), bucket.computeNs.end(), uint64_t{0}));
      for (BucketGoal &goal : *of)
        goal.sloNs = static_cast<uint64_t>(c.factor * static_cast<double>(slowest));
    }
    return;
  }
  algorithms::ScheduleTimes::Bucket &bucket = problem_.problem.schedules[0].buckets[0];
  residentNs_ = std::accumulate(bucket.computeNs.begin(), bucket.computeNs.end(), uint64_t{0});
  sloNs_ = static_cast<uint64_t>(c.factor * static_cast<double>(residentNs_));
  goals[0].sloNs = bucket.sloNs = sloNs_;
}

// Every count of three roles, and as many of the fourth as there is time for.
double OpenedCase::limitBytes() const {
  const algorithms::UnitProblem &problem = problem_.problem;
  uint64_t bytes[model::kUnitsPerLayer], ns[model::kUnitsPerLayer], most = 0;
  for (size_t role = 0; role < model::kUnitsPerLayer; ++role) {
    bytes[role] = problem.units[role].bytes;
    ns[role] = problem.copyNs(bytes[role]);
  }
  const auto layers = static_cast<uint64_t>(request_.model->layers);
  for (uint64_t a = 0; a <= layers && a * ns[0] <= sloNs_; ++a)
    for (uint64_t b = 0; b <= layers && a * ns[0] + b * ns[1] <= sloNs_; ++b)
      for (uint64_t c = 0; c <= layers && a * ns[0] + b * ns[1] + c * ns[2] <= sloNs_; ++c) {
        const uint64_t left = sloNs_ - a * ns[0] - b * ns[1] - c * ns[2];
        most = std::max(most, a * bytes[0] + b * bytes[1] + c * bytes[2] + std::min(layers, left / ns[3]) * bytes[3]);
      }
  return static_cast<double>(most);
}

uint64_t OpenedCase::layerComputeNs() const {
  const algorithms::ScheduleTimes &times = problem_.problem.schedules[0];
  // From the first step of layer 0 to that of layer 1: a layer's first step reads its first unit.
  uint64_t ns = 0;
  for (uint32_t step = times.uses[0].first; step < times.uses[model::kUnitsPerLayer].first; ++step)
    ns += times.buckets[0].computeNs[step];
  return ns;
}

uint64_t selectNFreed(OpenedCase &c) {
  cost::LayerTimes times;
  times.layers = c.layers();
  times.computeNs = static_cast<double>(c.layerComputeNs());
  times.transferNs = static_cast<double>(c.copyNs(c.layout().layerBytes(0)));
  times.restNs = static_cast<double>(c.residentNs()) - static_cast<double>(c.layers()) * times.computeNs;
  const cost::IntervalChoice choice = cost::chooseInterval(times, static_cast<double>(c.sloNs()));
  return static_cast<uint64_t>(choice.freed) * c.layout().layerBytes(0);
}

SweepResult sweepRings(const OpenedCase &c, int steps, uint64_t above) {
  const algorithms::UnitProblem &problem = c.problem();
  const algorithms::ScheduleTimes &times = problem.schedules[0];
  const int64_t layers = c.layers();
  const auto layer = static_cast<uint64_t>(c.layerBytes());
  SweepResult best{above, 0, 0, 0, 0};

  const auto attempt = [&](const int64_t(&counts)[model::kUnitsPerLayer], bool staggered) {
    std::vector<size_t> units;
    std::vector<uint64_t> bytes;
    uint64_t sum = 0;
    for (int64_t at = 0; at < layers; ++at)
      for (int role = 0; role < model::kUnitsPerLayer; ++role)
        if (inSpread(at, layers, counts[role], staggered ? role : 0)) {
          units.push_back(static_cast<size_t>(at * model::kUnitsPerLayer + role));
          bytes.push_back(problem.units[units.back()].bytes);
          sum += bytes.back();
        }
    ++best.sets;
    std::set<uint64_t> tried;
    for (uint64_t size = layer / 4; size <= 2 * layer; size += layer / 48) {
      const std::optional<algorithms::RingAssignment> ring = algorithms::assignRingWithin(bytes, size);
      if (!ring || sum <= ring->bytes + best.freedBytes || !tried.insert(ring->bytes).second)
        continue;
      ++best.rings;
      // Who lies in each unit's range before it: the last of the earlier units that reaches into it.
      algorithms::CutProblem cut;
      const auto reader = [&](size_t of, size_t end) {
        for (size_t k = end; k-- > 0;)
          if (ring->offset[k] < ring->offset[of] + bytes[of] && ring->offset[of] < ring->offset[k] + bytes[k])
            return static_cast<int64_t>(times.uses[units[k]].last);
        return int64_t{-1};
      };
      for (size_t k = 0; k < units.size(); ++k)
        cut.units.push_back({bytes[k], times.uses[units[k]].first, reader(k, k), reader(k, units.size())});
      cut.computeNs.emplace_back(times.buckets[0].computeNs);
      cut.copyNs = problem.copyNs;
      if (algorithms::iterationNs(cut, 0, algorithms::planCut(cut)) <= c.sloNs()) {
        best.freedBytes = sum - ring->bytes;
        best.movedBytes = sum;
        best.ringBytes = ring->bytes;
      }
    }
  };

  // Three roles' counts on a grid; of the fourth as many as the link can copy, and one and two less.
  for (int fourth = 0; fourth < model::kUnitsPerLayer; ++fourth) {
    const uint64_t copy = problem.copyNs(problem.units[static_cast<size_t>(fourth)].bytes);
    for (int i = 0; i < (steps + 1) * (steps + 1) * (steps + 1); ++i) {
      int64_t counts[model::kUnitsPerLayer] = {};
      uint64_t link = 0;
      for (int role = 0, rest = i; role < model::kUnitsPerLayer; ++role)
        if (role != fourth) {
          counts[role] = rest % (steps + 1) * layers / steps;
          rest /= steps + 1;
          link += static_cast<uint64_t>(counts[role]) * problem.copyNs(problem.units[static_cast<size_t>(role)].bytes);
        }
      if (link > c.sloNs())
        continue;
      const auto most = std::min<int64_t>(layers, static_cast<int64_t>((c.sloNs() - link) / copy));
      for (counts[fourth] = most; counts[fourth] >= std::max<int64_t>(0, most - 2); --counts[fourth])
        for (const bool staggered : {false, true})
          attempt(counts, staggered);
    }
  }
  return best;
}

} // namespace headrace::compiler
