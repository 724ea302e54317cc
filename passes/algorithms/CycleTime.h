// SPDX-License-Identifier: Apache-2.0
//
// What the copies of a cycle take beside compute, as a plan of them runs.
#pragma once

#include <cstdint>

#include "passes/algorithms/CyclePlaces.h"
#include "passes/algorithms/ScheduleKvSwap.h"

namespace headrace::algorithms {

// Of all iterations of a cycle. Copies of a direction keep their order, and each begins as soon as it may: out of a
// place once its layer has written its rows there, which is taken for a quarter of its compute (what reads them comes
// behind that), into one once that is left and nobody reads there. A layer waits for what is brought for it; an
// iteration ends with its copies. Exits and moves stand in the order of the visits that they are behind.
int64_t cycleTime(const Cycle &cycle, int32_t layers, const KvSwapTimes &times);

} // namespace headrace::algorithms
