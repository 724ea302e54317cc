// SPDX-License-Identifier: Apache-2.0
//
// Steps a second that a group of devices on one bus plays, its devices' iterations of the same decode schedule behind
// each other's, two of each device in flight. `contended`: the bus has what one link has.
#include <benchmark/benchmark.h>

#include "bench/sim/DecodeSchedule.h"
#include "runtime/sim/BusPlayer.h"

namespace {

using namespace headrace;

void play(benchmark::State &state, bool writeBack, double busShare) {
  const auto devices = static_cast<size_t>(state.range(0));
  const bench::Made made = bench::decode(32, writeBack);
  constexpr sim::LinkRates kLink = {1e9, 1e9, 10};
  const sim::TimedSchedule schedule(made.schedule, made.durations, kLink);
  sim::BusPlayer player(devices, {busShare * kLink.h2d});
  std::vector<std::array<sim::LaunchTimes, 2>> times(devices);
  std::vector<const int64_t *> moments(devices);
  std::vector<size_t> launched(devices);
  const auto launch = [&](size_t d) {
    player.launch(d, schedule, &times[d][launched[d]++ % 2]);
    moments[d] = &times[d][launched[d] % 2].endNs; // of the launch before
  };
  for (size_t d = 0; d < devices; ++d) {
    player.open(d, schedule.steps.size(), false, cost::Sharing(1.5));
    launch(d);
    launch(d);
  }
  for (auto _ : state)
    launch(player.passUntilAny(moments, sim::kNeverNs));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(schedule.steps.size()));
}

void groupOnAWideBus(benchmark::State &state) { play(state, false, 100); }
void groupContended(benchmark::State &state) { play(state, false, 1); }
void groupContendedBothDirections(benchmark::State &state) { play(state, true, 1); }

BENCHMARK(groupOnAWideBus)->Arg(1)->Arg(2)->Arg(4)->Arg(8);
BENCHMARK(groupContended)->Arg(1)->Arg(2)->Arg(4)->Arg(8);
BENCHMARK(groupContendedBothDirections)->Arg(1)->Arg(2)->Arg(4)->Arg(8);

} // namespace
