// SPDX-License-Identifier: Apache-2.0
//
// Where to cut the circle: with wrap-around, iteration N copies a prefix of what iteration N + 1 needs, and how long a
// prefix is planned so that both lanes end together.
//
//   copies of one iteration, in order:    [c..] d e f g h | a b [..c]
//                                          rest of this     prefix of the next
//   compute:                               . . . A B C . D E . F . G . H . head
//
// The prefix is `units` whole units and the first `bytes` bytes of the one after them. Too short, and the link idles
// while the last steps compute, so that the next iteration waits for its first units; too long, and the iteration ends
// late because the tail's ranges come free late: later still where what was there is written back. Every iteration
// starts with the prefix on the device and ends with the next one's there; all of its steps end before the next
// iteration starts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"

namespace headrace::algorithms {

// One offloaded unit. Compute steps are counted from 0 in the order of the compute lane.
struct CutUnit {
  uint64_t bytes = 0;        // multiple of the cut's alignment
  uint32_t firstUse = 0;     // the step that first reads it
  int64_t freeAfter = -1;    // its range is held by an earlier unit of the same iteration until this step has ended;
                             // -1: no earlier unit of the iteration was there
  int64_t tailFreeAfter = 0; // its range's last owner in an iteration is read last by this step
  bool divides = true;       // a cut may go through it; else it is there whole or not at all
  // Once this step has ended it is written back to its home, which is read again, and its range taken by another, only
  // when that has ended; -1: it is not.
  int64_t writtenBackAfter = -1;
  int64_t heldBefore = -1, heldLast = -1; // units: who holds its range until freeAfter, tailFreeAfter; -1: none
};

struct CutProblem {
  std::vector<CutUnit> units; // in order of use, which is the order of copying
  // Durations of the compute steps, one list a bucket that the schedule will be used for. At least one.
  std::vector<absl::Span<const uint64_t>> computeNs;
  // What a copy of so many bytes takes.
  std::function<uint64_t(uint64_t bytes)> copyNs;
  std::function<uint64_t(uint64_t bytes)> writeBackNs; // in the other direction; asked of units that are written back
  uint64_t alignment = 256;                            // the cut's byte position is a multiple of this
};

struct Cut {
  size_t units = 0;
  uint64_t bytes = 0; // of units[units]; below its size, 0 if units is the number of units, or that one does not divide
  bool operator==(const Cut &) const = default;
};

// The longest prefix there can be: the units before the first whose range another unit of the same iteration had
// before.
size_t longestPrefix(absl::Span<const CutUnit> units);

// How long an iteration in steady state takes with this cut, for bucket number `bucket`.
uint64_t iterationNs(const CutProblem &problem, size_t bucket, const Cut &cut);

// The cut with the least iteration time, the shortest prefix among equals. With several buckets: with the least worst
// ratio of iteration time to max(compute alone, copies alone), then the least sum of times.
Cut planCut(const CutProblem &problem);

} // namespace headrace::algorithms
