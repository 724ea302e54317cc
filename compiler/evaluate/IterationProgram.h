// SPDX-License-Identifier: Apache-2.0
//
// The program of an iteration with its movement, from the list of its steps: what the passes write into the IR.
#pragma once

#include <vector>

#include "compiler/evaluate/MovedBuffers.h"
#include "passes/algorithms/PlanMovement.h"
#include "passes/algorithms/Program.h"

namespace headrace::compiler {

struct IterationProgram : algorithms::Program {
  // By op: of one that computes its number in the list of steps; of a copy, and of what is there on entry, its number
  // in the plan's movements; of what is there on exit its number in the plan's list of that; of all else -1.
  std::vector<int32_t> origin;
};

IterationProgram programOf(const Steps &steps, const Homes &homes, const MovedBuffers &moved,
                           const algorithms::MovementPlan &plan);

} // namespace headrace::compiler
