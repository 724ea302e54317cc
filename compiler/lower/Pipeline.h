// SPDX-License-Identifier: Apache-2.0
//
// The pipeline: from a lowered model to scheduled, placed, verified IR. Pipeline.cpp is to be read first by whoever
// wants to know how the compiler works.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/evaluate/LayOutHost.h"
#include "ir/Headrace.h"
#include "passes/algorithms/Residency.h"
#include "passes/algorithms/SlabAddresses.h"
#include "runtime/cost/CostModel.h"

namespace headrace::compiler {

struct PipelineOptions {
  algorithms::Residency residency;
  int64_t kvBlocks = 0; // of each cache in this placement; 0: all that `kv` has
  // The cut of an iteration in the homes phase, where the residency leaves it to be planned. Asked of the decode
  // iteration first.
  std::function<absl::StatusOr<algorithms::Cut>(ir::IterationOp)> planCut;
  // The amounts of a compute step that reads its weights directly over the link. Null: steps keep theirs.
  std::function<cost::Work(ir::StepInterface, ir::IterationOp)> directWork;
  KvHomes kv;
  algorithms::SlabAddresses onHost;                                    // empty where only sizes are asked for
  std::optional<uint64_t> staging;                                     // where what the cpu lane works on begins
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
