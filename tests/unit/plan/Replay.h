// SPDX-License-Identifier: Apache-2.0
//
// Launches of a plan over memory in which every block of a cache is a number, as a device would do them: steps in any
// order that lanes and edges allow, of copies only what a launch's sizes leave of them. What the oracle says of a plan
// without looking at any launch is held against this.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan::test {

// So many iterations one after the other, by chance: which variant, in which placement, which blocks rows are written
// to, which are in use and which no longer are. Empty if all attention found what had been written last, all steps
// their weights, and all homes that no dirty content is of were current between iterations; else what was not so. The
// oracle must find nothing wrong with the plan but which bytes are where when (StaleCopy, EntryExit ..).
std::string replay(const Plan &plan, uint64_t seed, int iterations);

} // namespace headrace::plan::test
