// SPDX-License-Identifier: Apache-2.0
#include "passes/Passes.h"

namespace headrace::passes {
#define GEN_PASS_DEF_ASSIGNLANES
#include "passes/Passes.h.inc"

namespace {

ir::Lane laneFor(mlir::Operation *step) {
  if (llvm::isa<ir::PrefetchOp>(step))
    return ir::Lane::H2D;
  if (llvm::isa<ir::EvictOp, ir::StageOp>(step))
    return ir::Lane::D2H;
  if (llvm::isa<ir::AppendOp, ir::HostAttentionOp>(step))
    return ir::Lane::Cpu;
  return ir::Lane::Compute;
}

struct AssignLanes : impl::AssignLanesBase<AssignLanes> {
  using AssignLanesBase::AssignLanesBase;

  void runOnOperation() override {
    ir::IterationOp iteration = getOperation();
    if (iteration.getPhase() != ir::Phase::Movement) {
      iteration.emitError() << "lanes are assigned in the movement phase, not in phase "
                            << stringifyPhase(iteration.getPhase());
      return signalPassFailure();
    }
    for (mlir::Operation &op : iteration.block())
      if (auto step = llvm::dyn_cast<ir::StepInterface>(op))
        if (ir::StepInfo &info = step.stepInfo(); !info.lane) // a lane that is there already was chosen for a reason
          info.lane = laneFor(&op);
  }
};

} // namespace
} // namespace headrace::passes
