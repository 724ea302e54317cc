// SPDX-License-Identifier: Apache-2.0
//
// The way round of a residency whose tails rotate through places: the fewest moves (RotatePlaces.h), or swapped first
// in, first out (ScheduleKvSwap.h), or, where compute waits for that longer, in turns (TakeTurns.h).
#pragma once

#include <cstdint>

#include "passes/algorithms/Residency.h"
#include "passes/algorithms/RotatePlaces.h"
#include "passes/algorithms/ScheduleKvSwap.h"

namespace headrace::algorithms {

// The longest cycle that a plan has.
inline constexpr uint64_t kMostPeriod = 32;
// The most places that tails take turns in.
inline constexpr int32_t kMostTurning = 4;

// Of so many tails, swapped first in, first out: no swap is under way from one iteration to the next.
KvSwapProblem kvSwapProblem(const Residency &residency, int64_t tails);

// How so many tails, more than places, are swapped. By the protocol, where by the paper compute never waits; else by it
// or in turns in 1 to kMostTurning places, whatever takes the least time in the mean of a cycle (RotationTime.h). In
// turns as well where the protocol's cycle is too long.
struct SwapWay {
  Rotation rotation;
  int32_t turning = 0; // places that tails take turns in; 0: by the protocol
};
SwapWay swapWayOf(const Residency &residency, int64_t tails);

Rotation rotationOf(const Residency &residency, int64_t tails);
// 1 where there are no more tails than places: nothing moves.
uint64_t rotationPeriodOf(const Residency &residency, int64_t tails);

} // namespace headrace::algorithms
