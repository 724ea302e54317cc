// SPDX-License-Identifier: Apache-2.0
//
// The way round of a residency whose tails rotate through places: the fewest moves (RotatePlaces.h), or first in, first
// out (ScheduleKvSwap.h).
#pragma once

#include <cstdint>
#include <optional>

#include "passes/algorithms/Residency.h"
#include "passes/algorithms/RotatePlaces.h"
#include "passes/algorithms/ScheduleKvSwap.h"

namespace headrace::algorithms {

// Of so many tails, swapped first in, first out: no swap is under way from one iteration to the next.
KvSwapProblem kvSwapProblem(const Residency &residency, int64_t tails);

// None: what is swapped first in, first out has not been as it was within some hundred iterations.
std::optional<Rotation> rotationOf(const Residency &residency, int64_t tails);
std::optional<uint64_t> rotationPeriodOf(const Residency &residency, int64_t tails);

} // namespace headrace::algorithms
