// SPDX-License-Identifier: Apache-2.0
//
// Addresses for transient buffers: two that are live at the same step never share a byte, others may.
//
//   address
//     ^   +-----+                 each item is a box: its life to the right, its bytes upwards;
//     |   |  b  |   +-----+       the packing puts the boxes so that the highest end is low
//     | +-+-----+---+  c  |
//     | |     a     +-----+
//     +-+-----------+------------> steps
//
// Finding the lowest packing is NP-hard; the largest sum of bytes live at one step is a lower bound, and greedy packing
// in a few orders meets it for the lifetimes that decoder layers have.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace headrace::algorithms {

// A buffer that is live from step `first` to step `last`, both included.
struct LiveRange {
  uint64_t bytes = 0;
  int64_t first = 0;
  int64_t last = 0;
};

// A range of addresses that is taken from step `first` to step `last`, both included.
struct TakenRange {
  uint64_t address = 0;
  uint64_t bytes = 0;
  int64_t first = 0;
  int64_t last = 0;
};

struct Packing {
  std::vector<uint64_t> addresses; // one an item, multiples of the alignment
  uint64_t peak = 0;               // the highest end of an item; taken ranges do not count
};

// The largest sum of bytes, each rounded up to the alignment, that are live at one step.
uint64_t largestLiveSum(absl::Span<const LiveRange> items, uint64_t alignment = 256);

// The lowest packing found, around the ranges that are taken. Taken ranges may overlap each other. The search ends
// early where a packing's peak is at most `enough`.
Packing packRanges(absl::Span<const LiveRange> items, absl::Span<const TakenRange> taken = {}, uint64_t enough = 0,
                   uint64_t alignment = 256);

} // namespace headrace::algorithms
