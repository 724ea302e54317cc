// SPDX-License-Identifier: Apache-2.0
//
// One slot for units of any size: a ring of bytes that they go through in order of use, first in, first out.
//
//   units   a b c d e f g h | a b ..        in order of use, which is the order of copying
//   laps    [a b c][d e][f g h]             contiguous runs; a lap's units lie one behind the other from byte 0 on
//
//   byte 0  +----+------+---+
//           | a  |  b   | c |    lap 0     d is copied over a (and what of b it reaches) once that has been read, and
//           |   d   |   e  |     lap 1     so on; behind the last lap the first follows again: the circle is closed
//           | f | g |   h   |    lap 2
//           +----+------+---+ ring
//
// The ring is as large as its largest lap. For a number of laps the smallest ring is the optimum of the linear
// partition (contiguous runs, the largest as small as can be); sizes between two such optima hold no more. Among the
// partitions that reach it laps are as even as they can be: a short lap brings a unit close behind the one whose bytes
// it takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace headrace::algorithms {

inline constexpr uint64_t kRingAlign = 256; // of offsets; units' bytes are rounded up to it

struct RingAssignment {
  uint64_t bytes = 0;           // the largest lap
  std::vector<uint64_t> offset; // by unit
  std::vector<size_t> lapBegin; // by lap: its first unit
};

// The smallest ring for at most `laps` laps (at least one), with the fewest laps that do with that size; so
// assignRingWithin() of its size is the same. Units' bytes are above 0 and add up to less than 2^63. `within`: what is
// known to be enough for so many laps; it only saves time.
RingAssignment assignRing(absl::Span<const uint64_t> unitBytes, size_t laps,
                          uint64_t within = std::numeric_limits<uint64_t>::max());

// With the fewest laps whose ring is at most `ringBytes`; none where a unit alone is larger.
std::optional<RingAssignment> assignRingWithin(absl::Span<const uint64_t> unitBytes, uint64_t ringBytes);

// When the ranges of units in a ring are free; steps are counted from 0. See RangeTimes in passes/Movables.h,
// whose values these are; `tailFreeAfter` is of the first lap's units only, which are all that a tail can copy.
struct RingTimes {
  std::vector<int64_t> freeAfter, tailFreeAfter;
};
// lastUse: by unit, never falling.
RingTimes ringTimes(const RingAssignment &ring, absl::Span<const uint64_t> unitBytes,
                    absl::Span<const uint32_t> lastUse);

} // namespace headrace::algorithms
