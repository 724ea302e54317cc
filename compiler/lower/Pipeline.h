// SPDX-License-Identifier: Apache-2.0
//
// The pipeline: from a lowered model to scheduled, placed, verified IR. Pipeline.cpp is to be read first by whoever
// wants to know how the compiler works.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "ir/Headrace.h"
#include "passes/Movables.h"
#include "passes/algorithms/PlanCut.h"
#include "runtime/cost/CostModel.h"

namespace headrace::compiler {

struct PipelineOptions {
  std::vector<int64_t> layers; // offloaded decoder layers
  std::vector<int32_t> units;  // offloaded beside them, by number
  bool embedding = false, head = false;
  passes::SlotChoice slots;
  // What of the next iteration's units the tail of this one copies; called in the homes phase. Null: nothing wraps
  // around.
  std::function<absl::StatusOr<algorithms::Cut>(ir::IterationOp)> planCut;
  // The amounts of a compute step that reads its weights directly over the link; what ChooseHomes marks gets these.
  std::function<cost::Work(ir::StepInterface, ir::IterationOp)> directWork;
  // Where each unit lies in the host slab, by unit number; the same for all placements of a plan.
  std::function<uint64_t(int64_t unit)> hostAddress;
  int64_t kvAlign = 256;                                               // KV caches are whole pages of so many bytes
  std::function<void(ir::IterationOp, llvm::StringRef phase)> onPhase; // after each phase; may be null
  std::function<void(ir::IterationOp, llvm::StringRef pass)> onPass;   // after each pass, by its name in headrace-opt
};

// Takes every iteration of `module` (all of one placement) from the model phase to the offsets phase. An error is a
// broken invariant of the compiler, with the diagnostics that said so.
absl::Status runPipeline(mlir::ModuleOp module, const PipelineOptions &options);

// Its two halves: all buffers have addresses, as if there were no other placement; then, homes moved to where other
// placements have them (PlaceHomes.h), the phase is closed.
absl::Status runToOffsets(mlir::ModuleOp module, const PipelineOptions &options);
absl::Status closeOffsets(mlir::ModuleOp module, const PipelineOptions &options);

} // namespace headrace::compiler
