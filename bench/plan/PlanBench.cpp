// SPDX-License-Identifier: Apache-2.0
//
// Writing, reading and verifying a plan file of Llama-3.1-405B's shape: 126 layers, 8 placements (every k-th layer
// offloaded, k = 1 to 8; eager, with wrap-around), one schedule each, 32 variants a placement: 256 in all.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

#include "runtime/plan/PlanFile.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan {
namespace {

model::ModelSpec llama405b() {
  model::ModelSpec m = test::tinyLlama(126);
  m.name = "llama-3.1-405b";
  m.hidden = 16384;
  m.heads = 128;
  m.kvHeads = 8;
  m.headDim = 128;
  m.intermediate = 53248;
  m.vocab = 128256;
  m.maxPositions = 131072;
  m.dtype = model::DType::BF16;
  return m;
}

const Plan &bigPlan() {
  static const Plan plan = [] {
    test::PlanOptions options{llama405b(), {}};
    for (int64_t every = 1; every <= 8; ++every) {
      test::PlacementOptions placement;
      placement.name = "interval " + std::to_string(every);
      for (int64_t layer = every - 1; layer < 126; layer += every)
        placement.layers.push_back(layer);
      test::LimitOptions &limits = placement.limits.front();
      limits.tokens = limits.sequences = 32;
      limits.context = 4096;
      limits.cutUnits = 2;
      limits.cutBytes = 1 << 20;
      limits.buckets.clear();
      for (int64_t bucket = 1; bucket <= 32; ++bucket)
        limits.buckets.push_back(bucket);
      options.placements.push_back(placement);
    }
    Plan made = test::makePlan(options);
    if (const absl::Status status = verifyPlan(made, "the plan"); !status.ok()) {
      std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
      std::exit(1);
    }
    return made;
  }();
  return plan;
}

absl::Span<const std::byte> bytesOf(const std::string &text) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte *>(text.data()), text.size());
}

void serializePlan(benchmark::State &state) {
  const Plan &plan = bigPlan();
  for (auto _ : state)
    benchmark::DoNotOptimize(serialize(plan));
  state.counters["bytes"] = static_cast<double>(serialize(plan).size());
  state.counters["variants"] = static_cast<double>(plan.variants.size());
  size_t steps = 0;
  for (const Schedule &schedule : plan.schedules)
    steps += schedule.steps.size();
  state.counters["steps"] = static_cast<double>(steps);
}
BENCHMARK(serializePlan)->Unit(benchmark::kMillisecond);

void parsePlan(benchmark::State &state) {
  const std::string text = serialize(bigPlan());
  for (auto _ : state)
    benchmark::DoNotOptimize(parse(bytesOf(text), "bench").ok());
}
BENCHMARK(parsePlan)->Unit(benchmark::kMillisecond);

void verify(benchmark::State &state) {
  const Plan &plan = bigPlan();
  for (auto _ : state)
    benchmark::DoNotOptimize(findViolations(plan).size());
}
BENCHMARK(verify)->Unit(benchmark::kMillisecond);

void largestLive(benchmark::State &state) {
  const Plan &plan = bigPlan();
  for (auto _ : state)
    benchmark::DoNotOptimize(largestLiveBytes(plan, 0));
}
BENCHMARK(largestLive)->Unit(benchmark::kMillisecond);

// What a run pays before it opens the device: the file is in the page cache.
void loadAndVerify(benchmark::State &state) {
  const std::string path = "/tmp/headrace-bench-" + std::to_string(::getpid()) + ".plan";
  if (!writePlan(bigPlan(), path).ok()) {
    state.SkipWithError("cannot write the plan file");
    return;
  }
  for (auto _ : state)
    benchmark::DoNotOptimize(readPlan(path).ok());
  std::remove(path.c_str());
}
BENCHMARK(loadAndVerify)->Unit(benchmark::kMillisecond);

} // namespace
} // namespace headrace::plan
