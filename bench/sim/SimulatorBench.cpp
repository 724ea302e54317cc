// SPDX-License-Identifier: Apache-2.0
//
// Steps a second that the simulator plays, edges included.
#include <benchmark/benchmark.h>

#include "bench/sim/DecodeSchedule.h"
#include "runtime/sim/Simulator.h"

namespace {

using namespace headrace;

void play(benchmark::State &state, bool writeBack, double duplexShare) {
  const bench::Made made = bench::decode(static_cast<int>(state.range(0)), writeBack);
  const sim::Simulator simulator(made.schedule);
  sim::Timeline timeline;
  for (auto _ : state) {
    simulator.run(made.durations, cost::Sharing(duplexShare), timeline);
    benchmark::DoNotOptimize(timeline.iterationNs);
  }
  state.counters["steps"] = static_cast<double>(made.durations.size());
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(made.durations.size()));
}

void oneDirection(benchmark::State &state) { play(state, false, 1.0); }
void bothDirectionsShared(benchmark::State &state) { play(state, true, 1.5); }
void prepareAndPlay(benchmark::State &state) {
  const bench::Made made = bench::decode(static_cast<int>(state.range(0)), false);
  for (auto _ : state)
    benchmark::DoNotOptimize(sim::Simulator(made.schedule).run(made.durations, cost::Sharing()).iterationNs);
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(made.durations.size()));
}

BENCHMARK(oneDirection)->Arg(32)->Arg(126)->Arg(1024);
BENCHMARK(bothDirectionsShared)->Arg(32)->Arg(126)->Arg(1024);
BENCHMARK(prepareAndPlay)->Arg(32)->Arg(126)->Arg(1024);

} // namespace
