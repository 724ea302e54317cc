// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/CycleOf.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "passes/algorithms/CycleTime.h"
#include "passes/algorithms/TakeTurns.h"

namespace headrace::algorithms {
namespace {

constexpr int64_t kIterations = 128;       // to look for a cycle in
constexpr int64_t kMostVisits = 1'000'000; // all that is longer is played alike

// In thousandths of a layer's compute: each direction alone, and how much of that is left while both are at work.
KvSwapTimes timesOf(const SwapVisits &visits) {
  return {1000, std::min(visits.in, kMostVisits) * visits.both, std::min(visits.out, kMostVisits) * visits.both,
          visits.both};
}

} // namespace

KvSwapProblem kvSwapProblem(const Residency &residency, int64_t tails) {
  const SwapVisits visits = residency.kv().fifo().value_or(SwapVisits());
  return {static_cast<int32_t>(tails),
          static_cast<int32_t>(residency.kv().places()),
          {1, visits.in, visits.out},
          /*endsWithIteration=*/true};
}

SwapWay swapWayOf(const Residency &residency, int64_t tails) {
  const KvSwapProblem problem = kvSwapProblem(residency, tails);
  const KvSwapTimes times = timesOf(residency.kv().fifo().value_or(SwapVisits()));
  SwapWay best;
  int64_t bestTime = 0;
  const auto consider = [&](SwapWay way) {
    const int64_t time = cycleTime(way.cycle, problem.layers, times);
    if (best.cycle.period() == 0 ||
        time * static_cast<int64_t>(best.cycle.period()) < bestTime * static_cast<int64_t>(way.cycle.period())) {
      best = std::move(way);
      bestTime = time;
    }
  };
  if (const std::optional<KvSwapCycle> found = kvSwapCycle(problem, kIterations);
      found && static_cast<uint64_t>(found->period) <= kMostPeriod)
    consider({cycleOfSwaps(problem, *found)});
  if (best.cycle.period() > 0 && !kvSwapWaits({problem.layers, problem.places, problem.times}))
    return best;
  for (int32_t turning = 1; turning <= std::min(kMostTurning, problem.places); ++turning)
    consider({takeTurns(problem.layers, problem.places, turning), turning});
  return best;
}

Cycle cycleOf(const Residency &residency, int64_t tails) {
  return residency.kv().fifo() ? swapWayOf(residency, tails).cycle : cyclePlaces(tails, residency.kv().places());
}

uint64_t cyclePeriodOf(const Residency &residency, int64_t tails) {
  if (tails <= residency.kv().places())
    return 1;
  return residency.kv().fifo() ? swapWayOf(residency, tails).cycle.period()
                               : cyclePeriod(tails, residency.kv().places());
}

} // namespace headrace::algorithms
