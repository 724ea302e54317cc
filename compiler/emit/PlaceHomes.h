// SPDX-License-Identifier: Apache-2.0
//
// One home for a unit in all placements of a plan that keep it on the device.
#pragma once

#include <vector>

#include "compiler/evaluate/Draft.h"
#include "mlir/IR/BuiltinOps.h"

namespace headrace::compiler {

// `placements`: the iterations of one placement each, buffers placed (Pipeline.h), in the order of the draft's. Moves
// homes on the device to where the draft has them, and sets each placement's arena to its end. What is below homes
// stays where it is.
void placeHomes(const Draft &draft, const std::vector<mlir::ModuleOp> &placements);

} // namespace headrace::compiler
