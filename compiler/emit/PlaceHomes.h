// SPDX-License-Identifier: Apache-2.0
//
// One home for a unit in all placements of a plan that keep it on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "mlir/IR/BuiltinOps.h"

namespace headrace::compiler {

// `placements`: the iterations of one placement each, buffers placed (Pipeline.h). Moves homes on the device to where
// they are in every placement (algorithms::packHomes) and sets each placement's arena to its end. What is below homes
// stays where it is, and so does everything if there is only one placement. Returns the bytes of the arena of all.
uint64_t placeHomes(const std::vector<mlir::ModuleOp> &placements);

} // namespace headrace::compiler
