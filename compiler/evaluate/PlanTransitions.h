// SPDX-License-Identifier: Apache-2.0
//
// The transitions of a plan: what is copied where the device's state is not the one that a variant enters with.
//
//   within a placement   from the empty state, and from each schedule's exit, to each entry that it does not contain;
//                        of cycles only from the empty state. From what is dirty to the empty state: written back
//   between placements   what the one has at home on the device and the other has not, copied to its home; slots are
//                        left empty. What the other offloads is dropped, which costs nothing, so no transition is made
//                        where nothing is to be copied. For all pairs of up to kAllPairs placements; of more, in the
//                        order of their bytes at home, to those 1, 2, 4, ... further on, so that every change is a path
//                        of few hops, each a planned iteration of its own (core::TransitionPaths finds it).
#pragma once

#include "compiler/evaluate/PlanWriter.h"
#include "compiler/evaluate/Prices.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

inline constexpr size_t kAllPairs = 8;

// All schedules and states of variants are in the plan. Predicted times are what sim says.
void addTransitions(PlanWriter &writer, Prices &prices, plan::Plan &plan);

} // namespace headrace::compiler
