// SPDX-License-Identifier: Apache-2.0
//
// How long the host device's compute lane has nothing to do between two iterations of an engine, from the end of the
// last kernel of one to the start of the first of the next: iterations of about 2 ms, whose kernels take their time and
// do nothing else, in 16 seats with sequences that join and leave, with stop ids; lanes and the engine's thread pinned,
// the lane that computes to a core of its own. With two in flight the median is at most 2% of an iteration; with one
// beside it, for comparison.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "bench/Lanes.h"
#include "bench/serve/ServeBench.h"
#include "runtime/host/HostDevice.h"
#include "runtime/host/Signals.h"
#include "runtime/serve/engine/Engine.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

constexpr int64_t kSeats = 16, kIterationNs = 2'000'000;

// What the compute lane's thread notes of its kernels; read once all launches have ended.
struct Noted {
  int64_t steps = 0; // of an iteration
  int64_t next = 0;  // in this iteration
  int64_t firstNs = 0, lastEndNs = 0;
  std::vector<int64_t> gaps, iterations;
} noted;

void takeTime(const void *) {
  const int64_t start = threads::monotonicNs();
  if (noted.next == 0) {
    if (noted.lastEndNs > 0)
      noted.gaps.push_back(start - noted.lastEndNs);
    noted.firstNs = start;
  }
  int64_t now = start;
  while (now < start + kIterationNs / noted.steps)
    now = threads::monotonicNs();
  if (++noted.next == noted.steps) {
    noted.next = 0;
    noted.lastEndNs = now;
    noted.iterations.push_back(now - noted.firstNs);
  }
}

// The calling thread's core, while it lives.
class OnCore {
public:
  explicit OnCore(int core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    pinned_ = ::sched_getaffinity(0, sizeof(before_), &before_) == 0 && ::sched_setaffinity(0, sizeof(one), &one) == 0;
  }
  ~OnCore() {
    if (pinned_)
      (void)::sched_setaffinity(0, sizeof(before_), &before_);
  }
  OnCore(const OnCore &) = delete;
  OnCore &operator=(const OnCore &) = delete;

private:
  cpu_set_t before_;
  bool pinned_ = false;
};

double quantile(std::vector<int64_t> &values, double share) {
  const auto at = values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return static_cast<double>(*at);
}

void gap(benchmark::State &state) {
  const plan::Plan plan = core::tinyPlan(
      {.spec = core::tinyLlama(4), .batch = kSeats, .promptTokens = 64, .context = 512, .blockTokens = 16});
  const std::vector<plan::Step> &steps = plan.schedules[0].steps; // both schedules have as many kernels
  noted = {};
  noted.steps = std::count_if(steps.begin(), steps.end(),
                              [](const plan::Step &step) { return step.kind == plan::StepKind::Compute; });
  noted.gaps.reserve(1 << 16);
  noted.iterations.reserve(1 << 16);
  host::HostOptions hostOptions{.replaceKernels = kernels::wholeKernel<takeTime>()};
  bench::pinToFirstCores(hostOptions);
  const threads::AwakeCores awake = bench::askLowLatency("bench_serve", hostOptions);
  const auto device = host::makeHostDevice(hostOptions);
  const auto weights = model::syntheticWeights(1);
  const auto runtime = must(core::Runtime::load(plan, *device, {}, weights.get(), {}));
  const OnCore here(hostOptions.transferCore);
  uint64_t live = 0, requests = 0, tokens = 0;
  EngineOptions options;
  options.depth = static_cast<size_t>(state.range(0));
  options.onToken = [&](const EngineToken &) { ++tokens; };
  options.onEnd = [&](const EngineEnd &) { --live; };
  auto engine = must(Engine::create(*runtime, options));
  for (auto _ : state) {
    for (; live < kSeats + 4; ++live, ++requests)
      must(engine->submit({.prompt = std::vector<int32_t>(1 + requests % 30, 5),
                           .maxNewTokens = 50 + static_cast<int64_t>(requests * 37 % 100),
                           .stopTokens = {149}}));
    for (const uint64_t launched = engine->counters().iterations; engine->counters().iterations == launched;)
      must(engine->step());
  }
  engine.reset();
  if (!device->drain().ok() || noted.gaps.size() < 10)
    return state.SkipWithError("no gaps");
  const double median = quantile(noted.gaps, 0.5), iteration = quantile(noted.iterations, 0.5);
  state.counters["gap_us"] = median * 1e-3;
  state.counters["p99_us"] = quantile(noted.gaps, 0.99) * 1e-3;
  state.counters["iteration_us"] = iteration * 1e-3;
  state.counters["share"] = median / iteration;
  state.counters["low_latency"] = hostOptions.lowLatency;
  state.counters["joins"] = static_cast<double>(requests) / static_cast<double>(noted.iterations.size());
}

BENCHMARK(gap)->Arg(2)->Arg(1)->Iterations(2000)->Name("engine/gap/in_flight")->UseRealTime();

} // namespace
} // namespace headrace::serve
