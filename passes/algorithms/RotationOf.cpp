// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/RotationOf.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "passes/algorithms/RotationTime.h"
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
    const int64_t time = rotationTime(way.rotation, problem.layers, times);
    if (best.rotation.period() == 0 ||
        time * static_cast<int64_t>(best.rotation.period()) < bestTime * static_cast<int64_t>(way.rotation.period())) {
      best = std::move(way);
      bestTime = time;
    }
  };
  if (const std::optional<KvSwapCycle> cycle = kvSwapCycle(problem, kIterations);
      cycle && static_cast<uint64_t>(cycle->period) <= kMostPeriod)
    consider({kvSwapRotation(problem, *cycle)});
  if (best.rotation.period() > 0 && !kvSwapWaits({problem.layers, problem.places, problem.times}))
    return best;
  for (int32_t turning = 1; turning <= std::min(kMostTurning, problem.places); ++turning)
    consider({takeTurns(problem.layers, problem.places, turning), turning});
  return best;
}

Rotation rotationOf(const Residency &residency, int64_t tails) {
  return residency.kv().fifo() ? swapWayOf(residency, tails).rotation : rotatePlaces(tails, residency.kv().places());
}

uint64_t rotationPeriodOf(const Residency &residency, int64_t tails) {
  if (tails <= residency.kv().places())
    return 1;
  return residency.kv().fifo() ? swapWayOf(residency, tails).rotation.period()
                               : rotationPeriod(tails, residency.kv().places());
}

} // namespace headrace::algorithms
