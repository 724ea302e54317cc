// SPDX-License-Identifier: Apache-2.0
//
// ModelSpec -> IR: one iteration in the model phase, every weight at home on the device, amounts of work at the limits.
//
//   embed -> [ norm -> qkv -> rope_append -> attention -> out -> norm -> up -> (activate) -> down ] x layers
//         -> gather_rows -> norm -> head -> sample -> publish
#pragma once

#include "compiler/lower/ResolveGoal.h"
#include "ir/Headrace.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::compiler {

struct LowerOptions {
  const model::ModelSpec *spec = nullptr;
  const model::WeightLayout *layout = nullptr;
  const Target *target = nullptr;
  model::DeviceKind device = model::DeviceKind::Host;
  ir::Shape shape = ir::Shape::Decode;
  cost::Shape limits; // what transients are sized for
};

// Appends an iteration called `name` to `module`.
ir::IterationOp lowerModel(mlir::ModuleOp module, llvm::StringRef name, const LowerOptions &options);

// What a compute step is to the cost model; none for steps that are no kernel (publish).
std::optional<cost::OpSite> opSite(mlir::Operation *step);

} // namespace headrace::compiler
