// SPDX-License-Identifier: Apache-2.0
//
// Plans by hand whose caches are interleaved, made from those of MakePlan.h.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/Plan.h"

namespace headrace::plan::test {

// The caches of a plan, which lie at the arena's start, interleaved there: layer l's block b at (b * layers + l) *
// kvBlockBytes(). blocks[p]: how many placement p has, all on the device.
void interleave(Plan &plan, const std::vector<int64_t> &blocks);

} // namespace headrace::plan::test
