// SPDX-License-Identifier: Apache-2.0
//
// An iteration of the IR, from the movement phase on, as the plain values that lanes and lives are worked out from.
#pragma once

#include <vector>

#include "ir/Headrace.h"
#include "passes/algorithms/Program.h"

namespace headrace::passes {

struct ProgramOf : algorithms::Program {
  std::vector<mlir::Operation *> operations; // by op
};

// Waits between lanes, which the lanes phase has, are not in it. Fails (with a diagnostic) on a step without a lane.
mlir::FailureOr<ProgramOf> programOf(ir::IterationOp iteration);

} // namespace headrace::passes
