// SPDX-License-Identifier: Apache-2.0
//
// ModelSpec -> IR: one iteration in the model phase, every weight at home on the device, amounts of work at the limits.
//
//   embed -> [ norm -> qkv -> rope_append -> attention -> out -> norm -> up -> (activate) -> down ] x layers
//         -> gather_rows -> norm -> head -> sample -> publish
//
// Where blocks of the context keep activations they are declared; passes::insertRecompute() makes the steps of that.
//
// Of several mini-batches each part stands once a mini-batch, the first one's first, before the next part: a layer's
// weights are used by all of them, one after the other.
#pragma once

#include "compiler/choice/Resolve.h"
#include "ir/Headrace.h"
#include "passes/InsertRecompute.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/Plan.h"

namespace headrace::compiler {

struct LowerOptions {
  const model::ModelSpec *spec = nullptr;
  const model::WeightLayout *layout = nullptr;
  const Target *target = nullptr;
  model::DeviceKind device = model::DeviceKind::Host;
  ir::IterationClass iterationClass = ir::IterationClass::Decode;
  cost::Bucket limits; // what transients are sized for
};

// Appends an iteration called `name` to `module`.
ir::IterationOp lowerModel(mlir::ModuleOp module, llvm::StringRef name, const LowerOptions &options);

// Of an iteration lowered with these options whose activation blocks are recomputed.
passes::RecomputeAmounts recomputeAmounts(const LowerOptions &options);

// What a step of the IR is in a plan.
struct StepForm {
  plan::StepKind kind = plan::StepKind::Compute;
  std::optional<cost::OpSite> site; // of a compute step: its kernel, and whose weights it reads
  const char *result = nullptr;     // what the buffer that it makes is called in plans; null where it makes none
};
// Every op that is a step has a form, or is one that no plan can say yet: kUnimplemented, with its name.
absl::StatusOr<StepForm> stepForm(mlir::Operation *step);
// What a step is to the cost model; none for what is no kernel (publish, movement).
std::optional<cost::OpSite> opSite(mlir::Operation *step);

} // namespace headrace::compiler
