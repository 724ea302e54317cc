// SPDX-License-Identifier: Apache-2.0
//
// Which schedules follow each other in one cycle (Schedule::period).
#pragma once

#include <cstdint>
#include <tuple>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

// What the schedules of a cycle have in common: placement, class, KV blocks, what they are for, and the period.
using CycleKey = std::tuple<uint32_t, IterationClass, int64_t, int64_t, int64_t, int64_t, uint32_t>;
inline CycleKey cycleOf(const Schedule &s) {
  return {s.placement, s.iterationClass, s.kvBlocks, s.maxTokens, s.maxSequences, s.maxContext, s.period};
}

} // namespace headrace::plan
