// SPDX-License-Identifier: Apache-2.0
//
// Problems of few units, and what can be said of them by trying everything with the recurrence of PlanCut.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "passes/algorithms/UnitTimes.h"

namespace headrace::algorithms {

// Two steps a unit: one that reads it, one that does not. Copies take 1 ns a byte.
inline UnitProblem unitProblem(const std::vector<uint64_t> &bytes, const std::vector<uint64_t> &computeNs,
                               uint64_t sloNs, int32_t roles = 1) {
  UnitProblem problem;
  ScheduleTimes &schedule = problem.schedules.emplace_back();
  for (size_t i = 0; i < bytes.size(); ++i) {
    problem.units.push_back({bytes[i], static_cast<int32_t>(i) / roles, static_cast<int32_t>(i) % roles});
    schedule.uses.push_back({static_cast<uint32_t>(2 * i), static_cast<uint32_t>(2 * i)});
  }
  schedule.buckets.push_back({computeNs, sloNs});
  problem.copyNs = [](uint64_t n) { return n; };
  return problem;
}

// The same question for planCut() and iterationNs(), for one schedule.
inline CutProblem cutProblem(const UnitProblem &problem, size_t schedule, const std::vector<uint32_t> &units,
                             const RingAssignment &ring) {
  CutProblem cut;
  std::vector<uint64_t> bytes;
  std::vector<uint32_t> lastUse;
  const ScheduleTimes &times = problem.schedules[schedule];
  for (const uint32_t unit : units) {
    bytes.push_back(problem.units[unit].bytes);
    lastUse.push_back(times.uses[unit].last);
  }
  const RingTimes range = ringTimes(ring, bytes, lastUse);
  for (size_t k = 0; k < units.size(); ++k)
    cut.units.push_back({bytes[k], times.uses[units[k]].first, range.freeAfter[k],
                         k < range.tailFreeAfter.size() ? range.tailFreeAfter[k] : 0});
  for (const ScheduleTimes::Bucket &bucket : times.buckets)
    cut.computeNs.emplace_back(bucket.computeNs);
  cut.copyNs = problem.copyNs;
  cut.alignment = problem.alignment;
  return cut;
}

// Whether a schedule's buckets meet their SLOs with a cut.
inline bool meets(const UnitProblem &problem, size_t schedule, const CutProblem &cutProblem, const Cut &cut) {
  const std::vector<ScheduleTimes::Bucket> &buckets = problem.schedules[schedule].buckets;
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket)
    if (iterationNs(cutProblem, bucket, cut) > buckets[bucket].sloNs)
      return false;
  return true;
}

// Whether any cut at multiples of 1/64 of a unit (rounded down to the alignment) meets all SLOs.
inline bool anyCutMeets(const UnitProblem &problem, const std::vector<uint32_t> &units, const RingAssignment &ring) {
  for (size_t schedule = 0; schedule < problem.schedules.size(); ++schedule) {
    const CutProblem cut = cutProblem(problem, schedule, units, ring);
    const size_t longest = longestPrefix(cut.units);
    bool found = false;
    for (size_t k = 0; k <= longest && !found; ++k)
      for (uint64_t part = 0; part < (k < longest ? 64 : 1) && !found; ++part) {
        const uint64_t bytes = k < longest ? cut.units[k].bytes * part / 64 / problem.alignment * problem.alignment : 0;
        found = meets(problem, schedule, cut, {k, bytes});
      }
    if (!found)
      return false;
  }
  return true;
}

// The most that any set of units with any number of laps frees; 0 with none.
inline uint64_t mostFreed(const UnitProblem &problem) {
  uint64_t most = 0;
  for (uint32_t mask = 1; mask < 1u << problem.units.size(); ++mask) {
    std::vector<uint32_t> units;
    std::vector<uint64_t> bytes;
    uint64_t sum = 0;
    for (uint32_t unit = 0; unit < problem.units.size(); ++unit)
      if (mask >> unit & 1) {
        units.push_back(unit);
        bytes.push_back(problem.units[unit].bytes);
        sum += bytes.back();
      }
    for (size_t laps = 1; laps <= units.size(); ++laps) {
      const RingAssignment ring = assignRing(bytes, laps);
      if (sum > ring.bytes + most && anyCutMeets(problem, units, ring))
        most = sum - ring.bytes;
    }
  }
  return most;
}

} // namespace headrace::algorithms
