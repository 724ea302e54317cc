// SPDX-License-Identifier: Apache-2.0
//
// In how many laps a ring of some size takes a set of units (AssignRing.h) from which one is taken, or into which one
// is put, or both: far from these the laps are those of the set, so that they are counted nearby only.
//
//   units 3 2 2 1 3 2, a ring of 5      [3 2] [2 1] [3 2]      3 laps
//   without the fourth                  [3 2] [2 3] [2]        3 as well, others from there on
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"

namespace headrace::algorithms {

class LapsOfChanges {
public:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max(); // no unit
  static constexpr size_t kNever = std::numeric_limits<size_t>::max() / 2;

  // `units`: ascending; `ringBytes`: by unit, of those that may be put in as well. Both outlive it.
  LapsOfChanges(absl::Span<const uint32_t> units, absl::Span<const uint64_t> ringBytes)
      : units_(units), ringBytes_(ringBytes) {}

  // The fewest laps without `out`, which is of the set, and with `in`, which is not; kNever or more: a unit is larger
  // than the ring.
  size_t least(uint32_t out, uint32_t in, uint64_t capacity);

private:
  struct Laps {
    uint64_t capacity = 0;
    std::vector<uint64_t> filled; // by unit: bytes of the lap that those before it end in
    std::vector<size_t> before;   // that those before it take
    std::vector<size_t> from;     // that it and those behind it take where it begins one
  };
  const Laps &lapsOf(uint64_t capacity);

  absl::Span<const uint32_t> units_;
  absl::Span<const uint64_t> ringBytes_;
  std::vector<Laps> known_; // by capacity
};

} // namespace headrace::algorithms
