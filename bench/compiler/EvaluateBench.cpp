// SPDX-License-Identifier: Apache-2.0
//
// What a search pays for a choice: Llama-3.1-70B's 80 layers on an H100.
//
//   Schedule          every other unit on the host in slots, a circle that is cut: what is moved, the cut, copies,
//   edges
//                     and the packing of one schedule. `steps`: of it
//   Bucket            one more bucket of that schedule: durations, and the timeline. `ns_a_step`
//   BucketBothWays    the same with half of the KV blocks on the host, written back beside what is brought, where both
//                     directions share the link
//   HybridServe/M     policy hybridserve, OPT-30B on an RTX 4090, 64 sequences of 1,024 tokens, M mini-batches (0: as
//                     many as take the least): the whole search, and the compilation of what it chose
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "compiler/Compile.h"
#include "compiler/evaluate/Evaluate.h"
#include "runtime/model/ModelSpec.h"
#include "tests/support/SourceDir.h"

namespace headrace::compiler {
namespace {

[[noreturn]] void fail(const absl::Status &status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

template <class T> T orFail(absl::StatusOr<T> value) {
  if (!value.ok())
    fail(value.status());
  return *std::move(value);
}

CompileRequest onDevice(const std::string &model, const std::string &hardware) {
  const std::string examples = sourceDir() + "/examples/";
  CompileRequest request;
  request.model = orFail(model::openModel(examples + "models/" + model + ".toml")).spec;
  request.hardware = orFail(model::openHardware(examples + "hardware/" + hardware + ".toml"));
  return request;
}

struct Case {
  explicit Case(bool bothWays) : request(onDevice("llama-3.1-70b", "h100")) {
    request.hardware.hostMemoryBytes = request.goal.deviceMemory.emplace(uint64_t{1} << 40);
    request.buckets.newTokens = {1};
    request.buckets.sequences = {8};
    request.buckets.contexts = {4096};
    if (bothWays)
      request.hardware.duplexBandwidth = 1.5 * request.hardware.h2dBandwidth;
    target = orFail(resolve(request));
    layout = model::layoutWeights(request.model);
    roofline.emplace(request.model, request.hardware, target.activation, target.kv);
    prices.emplace(*roofline);
    iterations.emplace(request, target, layout, *prices);
    candidate = alike({}, target.choice);
    candidate.name = "choice";
    std::vector<int32_t> units;
    for (int32_t unit = 1; unit <= model::kUnitsPerLayer * static_cast<int32_t>(request.model->layers); unit += 2)
      units.push_back(unit);
    candidate.residency.setWeightsAway(units);
    candidate.residency.wrap.around = true;
    if (bothWays) {
      candidate.residency.setKvAway(request.model->layers, target.kvBlocks / 2);
      candidate.residency.kv().decodeBack = algorithms::WriteBack::All;
    }
    host = layOutHost({&candidate}, layout, target, request.model);
  }

  CompileRequest request;
  Target target;
  model::WeightLayout layout;
  std::optional<cost::Roofline> roofline;
  std::optional<Prices> prices;
  std::optional<Iterations> iterations;
  Candidate candidate;
  HostLayout host;
};

void Schedule(benchmark::State &state) {
  Case c(/*bothWays=*/false);
  size_t steps = 0;
  for (auto _ : state) {
    const PlacedCandidate placed = orFail(placeCandidate(*c.iterations, c.candidate, c.host));
    steps = placed.iterations.front().order.clocks.size();
    benchmark::DoNotOptimize(placed.arena.top);
  }
  state.counters["steps"] = static_cast<double>(steps);
}

void bucket(benchmark::State &state, bool bothWays) {
  Case c(bothWays);
  Draft draft = orFail(evaluate(*c.iterations, {c.candidate}));
  const sim::Simulator simulator(draft.schedules.front());
  std::vector<std::optional<cost::OpSite>> sites; // of steps that compute, in their order
  for (const plan::Step &step : draft.schedules.front().steps) {
    sites.emplace_back();
    if (step.kind == plan::StepKind::Compute)
      sites.back() = cost::OpSite{step.op, model::UnitRole::Qkv};
  }
  for (auto _ : state)
    benchmark::DoNotOptimize(c.iterations->variantOf(draft, 0, sites, c.target.decode.front(), simulator).predictedNs);
  const auto steps = static_cast<double>(sites.size());
  state.counters["steps"] = steps;
  state.counters["a_step"] =
      benchmark::Counter(steps, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
void Bucket(benchmark::State &state) { bucket(state, /*bothWays=*/false); }
void BucketBothWays(benchmark::State &state) { bucket(state, /*bothWays=*/true); }

void HybridServe(benchmark::State &state) {
  CompileRequest request = onDevice("opt-30b", "rtx4090-hybridserve");
  request.policy.name = "hybridserve";
  request.goal.batch = 64;
  request.goal.context = 1024;
  request.goal.autoMiniBatches = state.range(0) == 0;
  request.goal.miniBatches = state.range(0) == 0 ? 1 : state.range(0);
  for (auto _ : state)
    benchmark::DoNotOptimize(orFail(compile(request)).variants.size());
}

BENCHMARK(Schedule)->Unit(benchmark::kMicrosecond);
BENCHMARK(Bucket)->Unit(benchmark::kMicrosecond);
BENCHMARK(BucketBothWays)->Unit(benchmark::kMicrosecond);
BENCHMARK(HybridServe)->Arg(1)->Arg(4)->Arg(16)->Arg(0)->Unit(benchmark::kSecond)->Iterations(1);

} // namespace
} // namespace headrace::compiler
