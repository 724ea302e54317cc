// SPDX-License-Identifier: Apache-2.0
//
// Continuous against static batching in the same memory, and prompts in chunks against whole ones: 1,000 requests of
// ShareGPT's lengths on OPT-13B in virtual time, priced by what runs. `h100`: everything resident, KV in what is left;
// `a10`: 20 of 40 layers at home on the host. All at once, for throughput (a bound to keep: continuous is the faster),
// and as a Poisson process, for the gaps between tokens.
//
//   tokens_s   output tokens a second      itl_p99_ms   99th percentile of the gaps between a request's tokens
//   seats      mean sequences with rows in an iteration
#include <benchmark/benchmark.h>

#include "bench/serve/ServeBench.h"
#include "runtime/core/Runtime.h"
#include "runtime/serve/traffic/Arrivals.h"
#include "runtime/serve/traffic/Lengths.h"
#include "runtime/serve/traffic/Metrics.h"
#include "runtime/sim/SimDevice.h"

namespace headrace::serve {
namespace {

constexpr int64_t kRequests = 1000;

const plan::Plan &planOf(bool a10) {
  static const plan::Plan resident = optPlan("h100", {.batch = 128, .kvTokens = 50'000});
  static const plan::Plan offloaded = optPlan("a10", {.batch = 32, .kvTokens = 8'000, .offloadLayers = 20});
  return a10 ? offloaded : resident;
}

void traffic(benchmark::State &state, bool a10, double rate, Batching batching, Prefill prefill, int64_t tokens) {
  const plan::Plan &plan = planOf(a10);
  const auto lengths = must(fittedLengths(*findLengthFit("sharegpt"), plan.maxContext, kRequests, 1));
  const auto requests = makeRequests(must(arrivalTimes({.requestRate = rate}, kRequests, 1)), lengths);
  TrafficOptions options;
  options.engine.batching = batching;
  options.engine.prefill = prefill;
  options.engine.maxNumBatchedTokens = tokens;
  options.keepTokenTimes = true;
  TrafficResult result;
  for (auto _ : state) {
    const auto device = sim::makeSimDevice();
    const auto runtime = must(core::Runtime::load(plan, *device, {.pricing = core::Pricing::Rows}, nullptr, {}));
    result = must(runTraffic(*runtime, requests, options));
  }
  const TrafficMetrics metrics = summarize(result, {});
  if (metrics.completed != static_cast<uint64_t>(kRequests))
    return state.SkipWithError("not all requests were completed");
  state.counters["tokens_s"] = metrics.outputThroughput;
  state.counters["itl_p99_ms"] = metrics.itl.percentilesMs[1];
  state.counters["itl_max_ms"] = metrics.itl.maxMs;
  state.counters["ttft_p50_ms"] = metrics.ttft.medianMs;
  state.counters["tpot_p50_ms"] = metrics.tpot.medianMs;
  state.counters["seats"] = static_cast<double>(metrics.outputTokens) / static_cast<double>(result.engine.iterations);
  state.counters["preempted"] = static_cast<double>(metrics.preemptions);
  state.counters["thrown_away"] = static_cast<double>(result.engine.thrownAwayRows);
  state.counters["padded"] = static_cast<double>(result.engine.paddedRows);
}

void atOnce(benchmark::State &state, bool a10, Batching batching) {
  traffic(state, a10, std::numeric_limits<double>::infinity(), batching, Prefill::Chunked, 0);
}
void coming(benchmark::State &state, Prefill prefill, int64_t tokens) {
  traffic(state, /*a10=*/false, 10, Batching::Continuous, prefill, tokens);
}

BENCHMARK_CAPTURE(atOnce, h100_continuous, false, Batching::Continuous)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(atOnce, h100_static, false, Batching::Static)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(atOnce, a10_continuous, true, Batching::Continuous)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(atOnce, a10_static, true, Batching::Static)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(coming, whole_2048, Prefill::Whole, 2048)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(coming, chunked_2048, Prefill::Chunked, 2048)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(coming, chunked_512, Prefill::Chunked, 512)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(coming, chunked_256, Prefill::Chunked, 256)->Iterations(1)->Unit(benchmark::kMillisecond);

} // namespace
} // namespace headrace::serve
