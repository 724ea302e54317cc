// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/SearchFastest.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace headrace::algorithms {

std::optional<FastestPlacement> searchFastest(const UnitProblem &problem, uint64_t leastFreed, double low,
                                              double high) {
  SearchLimits limits;
  limits.enoughFreed = leastFreed;
  std::optional<FastestPlacement> fastest;
  // Whichever units free so much, their copies take so long; a cut unit's two parts may be priced a little below it.
  double aByte = std::numeric_limits<double>::max();
  for (const OffloadableUnit &unit : problem.units)
    aByte = std::min(aByte, static_cast<double>(problem.copyNs(unit.bytes)) / static_cast<double>(unit.bytes));
  const double leastNs = 0.999 * aByte * static_cast<double>(leastFreed);
  const auto attempt = [&](double factor) {
    for (const ScheduleTimes &schedule : problem.schedules)
      for (const ScheduleTimes::Bucket &bucket : schedule.buckets)
        if (static_cast<double>(bucket.sloNs) * factor < leastNs)
          return false;
    UnitProblem scaled = problem;
    for (ScheduleTimes &schedule : scaled.schedules)
      for (ScheduleTimes::Bucket &bucket : schedule.buckets)
        bucket.sloNs = static_cast<uint64_t>(static_cast<double>(bucket.sloNs) * factor);
    std::optional<UnitPlacement> placed = searchUnits(scaled, limits);
    if (!placed || placed->freedBytes < leastFreed)
      return false;
    fastest = {factor, *std::move(placed)};
    return true;
  };
  if (!attempt(high))
    return std::nullopt;
  if (attempt(low))
    return fastest;
  while (high > low * 1.001) {
    const double middle = low + (high - low) / 2;
    (attempt(middle) ? high : low) = middle;
  }
  return fastest;
}

} // namespace headrace::algorithms
