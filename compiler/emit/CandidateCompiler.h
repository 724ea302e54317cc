// SPDX-License-Identifier: Apache-2.0
//
// One candidate from the model to its place in a plan:
//
//   lower -> pipeline, all buffers placed (Placed) -> homes moved to where other placements have them (PlaceHomes.h)
//         -> schedules, and a variant for each bucket, priced and played
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "compiler/emit/EmitPlan.h"
#include "compiler/evaluate/Iterations.h"
#include "compiler/evaluate/LayOutHost.h"
#include "compiler/lower/LowerModel.h"
#include "compiler/lower/Pipeline.h"

namespace headrace::compiler {

// A candidate on its way into the plan. The candidate outlives it.
struct Placed {
  const Candidate *candidate;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  PipelineOptions options;
  uint64_t arenaBytes() { return static_cast<uint64_t>((*module->getOps<ir::IterationOp>().begin()).getArenaBytes()); }
};

class CandidateCompiler {
public:
  // Outlives it.
  explicit CandidateCompiler(Iterations &iterations);

  // All buffers placed, as if there were no other placement.
  absl::StatusOr<Placed> place(const Candidate &candidate, const HostLayout &host);
  // The schedules and variants of the placement. `onStep`: called after each of them; may be null.
  absl::Status addTo(PlanWriter &writer, Placed &placed, const std::function<void()> &onStep);

private:
  mlir::OwningOpRef<mlir::ModuleOp> lower(const Candidate &candidate);
  PipelineOptions optionsOf(const Candidate &candidate, const HostLayout &host);

  Iterations &iterations_;
  mlir::MLIRContext context_;
};

} // namespace headrace::compiler
