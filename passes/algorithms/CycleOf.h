// SPDX-License-Identifier: Apache-2.0
//
// The way round of a residency whose tails cycle through places: the fewest moves (CyclePlaces.h), or swapped first
// in, first out (ScheduleKvSwap.h), or, where compute waits for that longer, in turns (TakeTurns.h).
#pragma once

#include <cstdint>

#include "passes/algorithms/CyclePlaces.h"
#include "passes/algorithms/Residency.h"
#include "passes/algorithms/ScheduleKvSwap.h"

namespace headrace::algorithms {

// The longest cycle that a plan has.
inline constexpr uint64_t kMostPeriod = 32;
// The most places that tails take turns in.
inline constexpr int32_t kMostTurning = 4;

// Of so many tails, swapped first in, first out: no swap is under way from one iteration to the next.
KvSwapProblem kvSwapProblem(const Residency &residency, int64_t tails);

// How so many tails, more than places, are swapped. By the protocol, where by the paper compute never waits; else by it
// or in turns in 1 to kMostTurning places, whatever takes the least time in the mean of a cycle (CycleTime.h). In
// turns as well where the protocol's cycle is too long.
struct SwapWay {
  Cycle cycle;
  int32_t turning = 0; // places that tails take turns in; 0: by the protocol
};
SwapWay swapWayOf(const Residency &residency, int64_t tails);

Cycle cycleOf(const Residency &residency, int64_t tails);
// 1 where there are no more tails than places: nothing moves.
uint64_t cyclePeriodOf(const Residency &residency, int64_t tails);

} // namespace headrace::algorithms
