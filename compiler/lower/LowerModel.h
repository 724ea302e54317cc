// SPDX-License-Identifier: Apache-2.0
//
// Steps -> IR: one iteration in the model phase, every weight at home on the device, amounts of work at the limits.
// What steps there are is said by compiler/evaluate/Steps.h; here each becomes its op. A residual stream that leaves
// the device has its home on the host from the start, and each of its layers reads what is brought of it.
#pragma once

#include "compiler/evaluate/Steps.h"
#include "ir/Headrace.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

// Appends an iteration called `name` to `module`.
ir::IterationOp lowerModel(mlir::ModuleOp module, llvm::StringRef name, const StepsRequest &request);

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
