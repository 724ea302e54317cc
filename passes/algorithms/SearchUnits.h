// SPDX-License-Identifier: Apache-2.0
//
// Which units to offload, and how large a ring to bring them through, so that the most device memory is freed while
// every bucket meets its SLO.
//
//   freed = bytes of the offloaded units - bytes of the ring
//
// Bounds say what matters: no more than the SLO's time can be copied, so the set must fill the link's time to the last
// gap; and what a ring costs is paid once, so it should hold little more than two units that follow each other, small
// ones where small ones will do. A link that is never idle is one whose copies are spread as evenly over the compute as
// their sizes allow. The search:
//
//   1. For sets of roles (all units but the largest kinds, ...) and rings made of a few units' sizes, the most
//   promising
//      first (bound: min(SLO's bytes, all bytes of these roles) - ring): go through the iteration and offload each unit
//      that the link can bring by the time it is needed, compute being stretched evenly to a time T. The largest T that
//      does, by bisection, is what the link can fill.
//   2. From the best of these, and from units spread evenly in numbers that bisection finds: add units, exchange units
//      against near ones, drop units where that makes the ring smaller, as long as more is freed.
//
// Exact timing decides every step (UnitTimes.h). Nothing depends on a clock: the same problem has the same answer.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "passes/algorithms/UnitTimes.h"

namespace headrace::algorithms {

struct UnitPlacement {
  std::vector<uint32_t> units; // indices, ascending
  uint64_t ringBytes = 0;
  uint64_t offloadedBytes = 0;
  uint64_t freedBytes = 0; // offloadedBytes - ringBytes
  UnitTiming timing;
  bool operator==(const UnitPlacement &) const = default;
};

struct SearchLimits {
  uint64_t mostBytes = std::numeric_limits<uint64_t>::max(); // offloaded at most
  std::vector<uint32_t> kept;                                // indices, ascending: offloaded in any case
  std::vector<uint32_t> only;                                // indices, ascending; if not empty, no others may be
  // One that offloads at least `full` bytes, so that it fills the link, is preferred where it frees at least the share
  // `enough` of the most.
  uint64_t full = 0;
  double enough = 0.985;
  // The search ends with the first placement that frees so many bytes.
  uint64_t enoughFreed = std::numeric_limits<uint64_t>::max();
  uint64_t evaluations = 120'000; // iterations played at most, about
};

// The placement found that frees the most; one without units where none frees anything. None where a bucket does not
// meet its SLO even with nothing offloaded, or not with `kept` offloaded.
std::optional<UnitPlacement> searchUnits(const UnitProblem &problem, const SearchLimits &limits = {});

// The smallest ring with which these units meet every SLO; none if no ring does.
std::optional<UnitPlacement> placeUnits(const UnitProblem &problem, const std::vector<uint32_t> &units);

} // namespace headrace::algorithms
