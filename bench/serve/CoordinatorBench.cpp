// SPDX-License-Identifier: Apache-2.0
//
// What the coordinator takes of an iteration: a decision for 8 devices of 64 placements (bound 1 ms), and what a device
// asks at the edge of every iteration (bound 20 us).
#include <benchmark/benchmark.h>

#include <random>

#include "runtime/serve/fleet/Coordinator.h"

namespace headrace::serve {
namespace {

constexpr uint32_t kDevices = 8;
constexpr uint64_t kLayerBytes = 400'000'000;

// A 64-layer model under Select-N's rule: offload nothing, or an interval from 1 to 63.
BusLoad selectNLoad(uint32_t device, std::mt19937 &random) {
  const auto pick = [&](int a, int b) { return std::uniform_int_distribution<int>(a, b)(random); };
  const cost::LayerTimes times = {64, pick(5, 40) * 1e5, 0, 0};
  BusLoad load{device, cost::residentNs(times) * pick(102, 300) / 100.0, {}};
  for (int64_t interval = 0; interval < 64; ++interval)
    load.placements.push_back(selectNPlacement(times, kLayerBytes, interval));
  return load;
}

// Placements that nothing orders: few are left out before the search, and its nodes run out.
BusLoad anyLoad(uint32_t device, std::mt19937 &random) {
  const auto pick = [&](int a, int b) { return std::uniform_int_distribution<int>(a, b)(random); };
  const double computeNs = pick(50, 200) * 1e6;
  BusLoad load{device, computeNs * pick(10, 40) / 10.0, {}};
  for (uint32_t i = 0; i < 64; ++i) {
    BusPlacement p;
    p.placement = i;
    p.linkBytes = static_cast<uint64_t>(i == 0 ? 0 : pick(1, 400)) * 10'000'000;
    p.freedBytes = p.linkBytes + static_cast<uint64_t>(pick(0, 50)) * 10'000'000;
    p.computeNs = p.shortestNs = computeNs;
    p.hiddenNs = computeNs * pick(0, 100) / 100.0;
    load.placements.push_back(p);
  }
  return load;
}

void decide(benchmark::State &state, BusLoad (*loadFor)(uint32_t, std::mt19937 &)) {
  std::mt19937 random(1);
  const Bus bus{96e9, std::vector<double>(kDevices, 24e9)};
  std::vector<std::vector<BusLoad>> cases(16);
  for (std::vector<BusLoad> &loads : cases) {
    for (uint32_t d = 0; d < kDevices; ++d)
      loads.push_back(loadFor(d, random));
  }
  size_t next = 0;
  double exact = 0, share = 0, nodes = 0;
  for (auto _ : state) {
    const Combination found = chooseCombination(bus, cases[next++ % cases.size()], Maximise::FreedMemory);
    exact += found.exact;
    nodes += static_cast<double>(found.nodes);
    share += found.bound > 0 ? found.value / found.bound : 1;
  }
  state.counters["proven"] = exact / static_cast<double>(state.iterations());
  state.counters["nodes"] = nodes / static_cast<double>(state.iterations());
  state.counters["of bound"] = share / static_cast<double>(state.iterations());
}
BENCHMARK_CAPTURE(decide, select_n, selectNLoad)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(decide, any, anyLoad)->Unit(benchmark::kMicrosecond);

Coordinator running() {
  std::mt19937 random(1);
  std::vector<BusDevice> devices(kDevices, {"device", 24e9, 64 * kLayerBytes});
  Coordinator c = *Coordinator::create(96e9, devices);
  for (uint32_t d = 0; d < kDevices; ++d) {
    const BusLoad load = selectNLoad(d, random);
    if (!c.arrive({d, load.sloNs, 0, load.placements}).ok())
      continue;
    for (int tries = 0; tries < 4 && !*c.start(d); ++tries) {
      for (uint32_t other = 0; other < d; ++other)
        benchmark::DoNotOptimize(c.nextIteration(other).ok());
    }
  }
  return c;
}

void nextIteration(benchmark::State &state) {
  Coordinator c = running();
  uint32_t device = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(c.nextIteration(device).ok());
    device = (device + 1) % kDevices;
  }
}
BENCHMARK(nextIteration)->Unit(benchmark::kMicrosecond);

// The change itself: bandwidth falls and comes back, each time all eight devices ask what to run.
void changedIteration(benchmark::State &state) {
  Coordinator c = running();
  bool low = false;
  uint64_t changes = 0;
  for (auto _ : state) {
    state.PauseTiming();
    low = !low;
    for (int i = 0; i < 33; ++i)
      benchmark::DoNotOptimize(c.measured(low ? 48e9 : 96e9).ok());
    state.ResumeTiming();
    for (uint32_t device = 0; device < kDevices; ++device)
      changes += c.nextIteration(device)->changed;
  }
  state.counters["changes"] = static_cast<double>(changes) / static_cast<double>(state.iterations());
}
BENCHMARK(changedIteration)->Unit(benchmark::kMicrosecond)->Iterations(2000);

} // namespace
} // namespace headrace::serve
