// SPDX-License-Identifier: Apache-2.0
//
// A range of placements between the one that offloads the least within the memory and the one that was chosen, so that
// a plan has as many as were asked for: what a coordinator, or whoever runs the plan, may change to.
//
//   freed by the chosen one    0 . . . . . . . . . . . . 12        of 4
//   the least that fits        0
//   nested up to it                    4       8                   evenly over the bytes that they move
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/search/MostFreed.h"

namespace headrace::compiler {

struct RangeAsked {
  size_t placements = 1;     // in all
  bool withinChosen = false; // none offloads what the chosen one does not: what is nested fits together
  bool anyTime = false;      // whatever they take
};

// Adds to `placements`, which has `chosen` and those of other buckets.
void spreadRange(MostFreed &choice, const RangeAsked &asked, size_t chosen, uint64_t deviceMemory,
                 std::vector<size_t> &placements);

} // namespace headrace::compiler
