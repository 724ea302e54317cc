// SPDX-License-Identifier: Apache-2.0
//
// One candidate from the model to its place in a plan:
//
//   lower -> pipeline, all buffers placed (Placed) -> homes moved to where other placements have them (PlaceHomes.h)
//         -> schedules, and a variant for each bucket, priced and played
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/choice/Resolve.h"
#include "compiler/emit/EmitPlan.h"
#include "compiler/emit/LayOutHost.h"
#include "compiler/evaluate/Placements.h"
#include "compiler/evaluate/Prices.h"
#include "compiler/lower/LowerModel.h"
#include "compiler/lower/Pipeline.h"
#include "runtime/sim/Simulator.h"

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
  // All outlive it.
  CandidateCompiler(const CompileRequest &request, const Target &target, const model::WeightLayout &layout,
                    Prices &prices);

  // Of an iteration of each iteration class: decode, then mixed where the target has such.
  std::vector<MemoryUse> memoryUses() const;
  // The compute steps of an iteration with nothing offloaded.
  std::vector<PricedStep> pricedSteps() const;
  size_t classes() const { return classes_.size(); }

  struct Where {
    const HostLayout *host = nullptr;
    bool forThePlan = true; // false: to be compared; no phase is shown
  };
  // All buffers placed, as if there were no other placement.
  absl::StatusOr<Placed> place(const Candidate &candidate, const Where &where);
  // The schedules and variants of the placement. `onStep`: called after each of them; may be null.
  absl::Status addTo(plan::Plan &plan, PlanEmitter &emitter, Placed &placed, const std::function<void()> &onStep);

private:
  // One iteration class: its buckets, and the iteration that all its schedules begin as.
  struct IterationClass {
    plan::IterationClass iterationClass;
    const std::vector<cost::Bucket> *buckets;
    const char *name() const { return iterationClass == plan::IterationClass::Decode ? "decode" : "mixed"; }
  };
  // An iteration of each class, or a cycle of so many; where tails of caches are away, from this block on, one more
  // that brings none.
  mlir::OwningOpRef<mlir::ModuleOp> lower(int64_t firstKvBlockAway = 0, uint64_t period = 1);
  StepsRequest stepsRequest(plan::IterationClass iterationClass) const;
  PipelineOptions optionsOf(const Candidate &candidate, const Where &where);
  const std::vector<cost::Bucket> &bucketsOf(ir::IterationOp iteration) const;
  plan::Variant variantOf(const EmittedSchedule &emitted, const cost::Bucket &bucket, const plan::Plan &plan,
                          const sim::Simulator &simulator);

  const CompileRequest &request_;
  const Target &target_;
  const model::WeightLayout &layout_;
  Prices &prices_;
  mlir::MLIRContext context_;
  std::vector<IterationClass> classes_;
  sim::Timeline timeline_;
};

} // namespace headrace::compiler
