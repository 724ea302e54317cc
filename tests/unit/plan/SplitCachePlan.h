// SPDX-License-Identifier: Apache-2.0
//
// Plans by hand whose caches are interleaved, made from those of MakePlan.h.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan::test {

// The caches of a plan, which lie at the arena's start, interleaved there: layer l's block b at (b * layers + l) *
// kvBlockBytes(). blocks[p]: how many placement p has, all on the device.
void interleave(Plan &plan, const std::vector<int64_t> &blocks);

struct SplitOptions {
  std::vector<int64_t> resident, blocks; // by placement: blocks of a layer on the device, and in all
  // The first layer's tail is on the device when an iteration starts, and copied again at its end. Of placement 0.
  bool carry = false;
};
// Of a plan that offloads nothing, caches as with interleave(), and what is not resident at home on the host: copied
// to two slots in turn, behind the arena, layer l's to slot l % 2. Transitions lead from each placement to each other
// that has more of what exists on the device.
//
//   compute   append 0  attention 0   append 1  attention 1   append 2 ...
//   h2d       tail 0  tail 1      |   tail 2            |     tail 3        (edges from the copies to the appends)
void split(Plan &plan, const SplitOptions &options);

} // namespace headrace::plan::test
