// SPDX-License-Identifier: Apache-2.0
//
// The search of placements: how long it takes, and how near it comes to what there is.
//
//   Search/MODEL/DEVICE/BUCKET/FACTOR  one goal, a multiple of the resident time. Beside the time, in layers:
//       limit            what the link copies within the goal, start-up included
//       moved_of_limit   what is moved, of it (of all layers where that is less)
//       ring, freed      bytes of the ring; of offloaded units less the ring
//       of_sweep         freed, of the best that a sweep over rings of 0.25 to 2 layers finds (PlacementSweep.h), or of
//                        itself where that finds nothing better
//       select_n         what Select-N's interval frees
//   Chain/MODEL/BUCKET                 six nested placements, from 1.02 to 3 times the resident time; the worst share
//   AllBuckets                         one goal for decode and one for prefill over every bucket of a plan of
//                                      Llama-3.1-8B
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "runtime/cost/SelectN.h"
#include "tests/unit/compiler/PlacementSweep.h"

namespace headrace::compiler {
namespace {

[[noreturn]] void fail(const absl::Status &status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

std::string slashed(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '/');
  return name;
}

void search(benchmark::State &state, const SearchCase &asked) {
  OpenedCase c(asked);
  SearchedPlacement found;
  for (auto _ : state) {
    absl::StatusOr<SearchedPlacement> placement = c.search();
    if (!placement.ok())
      fail(placement.status());
    found = *std::move(placement);
  }
  const double layer = c.layerBytes(), all = static_cast<double>(c.layers()) * layer;
  const double freed = static_cast<double>(found.freedBytes);
  state.counters["limit"] = c.limitBytes() / layer;
  state.counters["moved_of_limit"] = static_cast<double>(found.link.movedBytes) / std::min(c.limitBytes(), all);
  state.counters["ring"] = static_cast<double>(found.ringBytes) / layer;
  state.counters["freed"] = freed / layer;
  state.counters["of_sweep"] = freed / static_cast<double>(sweepRings(c, 4, found.freedBytes).freedBytes);
  state.counters["select_n"] = static_cast<double>(selectNFreed(c)) / layer;
}

void chain(benchmark::State &state, const SearchCase &asked) {
  OpenedCase c(asked);
  double worst = 1, nested = 0;
  for (auto _ : state) {
    worst = 1;
    nested = 0;
    for (const algorithms::ChainLink &link :
         algorithms::searchChain(c.problem(), {{1.0}, {1.1}, {1.3}, {1.5}, {2.0}, {3.0}})) {
      worst = std::min(worst, link.share);
      nested += link.nested ? 1 : 0;
    }
  }
  state.counters["worst_share"] = worst;
  state.counters["nested"] = nested;
}

// All of the default buckets; goals of 1.5 times the slowest decode and mixed iteration.
void allBuckets(benchmark::State &state) {
  const SearchCase asked{"llama-3.1-8b", "a10", {32, 32, 2048}, true, 1.5};
  OpenedCase c(asked, /*allBuckets=*/true);
  for (auto _ : state)
    benchmark::DoNotOptimize(c.search());
  state.counters["buckets"] = static_cast<double>(c.buckets());
}
BENCHMARK(allBuckets)->Name("AllBuckets")->Unit(benchmark::kMillisecond);

} // namespace
} // namespace headrace::compiler

int main(int argc, char **argv) {
  using namespace headrace::compiler;
  for (const SearchCase &c : searchCases({"a10", "rtx4090"}))
    benchmark::RegisterBenchmark(("Search/" + slashed(c.name())).c_str(),
                                 [c](benchmark::State &state) { search(state, c); })
        ->Unit(benchmark::kMillisecond)
        ->Iterations(3);
  for (const SearchCase &c : searchCases({"a10"}))
    if (c.factor < 1.05)
      benchmark::RegisterBenchmark(("Chain/" + slashed(c.name())).c_str(),
                                   [c](benchmark::State &state) { chain(state, c); })
          ->Unit(benchmark::kMillisecond)
          ->Iterations(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv))
    return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
