// SPDX-License-Identifier: Apache-2.0
//
// Takes waits away that say nothing new (passes/algorithms/OrderLanes.cpp says which).
#include <cassert>

#include "passes/Passes.h"
#include "passes/algorithms/Program.h"
#include "llvm/ADT/DenseMap.h"

namespace headrace::passes {
#define GEN_PASS_DEF_ELIDEWAITS
#include "passes/Passes.h.inc"

namespace {

mlir::LogicalResult elide(ir::IterationOp iteration) {
  std::vector<algorithms::LaneStep> steps;
  std::vector<algorithms::Wait> waits;
  llvm::SmallVector<ir::WaitOp> ops; // by wait
  llvm::DenseMap<mlir::Operation *, uint32_t> indexOf;
  uint32_t index = 0;
  for (mlir::Operation &op : iteration.block()) {
    if (auto wait = llvm::dyn_cast<ir::WaitOp>(op)) {
      if (wait.getKind() == ir::WaitKind::Program)
        return op.emitError() << "is in program order; insert the waits between lanes first";
      const auto awaited = indexOf.find(ir::stepOf(wait.getEvent()));
      assert(awaited != indexOf.end() && "SSA: an event's step stands before the wait");
      waits.push_back({index, awaited->second, static_cast<algorithms::Lane>(wait.getLane()),
                       static_cast<algorithms::WaitKind>(wait.getKind())});
      ops.push_back(wait);
    } else if (auto step = llvm::dyn_cast<ir::StepInterface>(op)) {
      if (!step.stepInfo().lane)
        return op.emitError() << "has no lane";
      steps.push_back({index, static_cast<algorithms::Lane>(*step.stepInfo().lane)});
      indexOf[&op] = index;
    }
    ++index;
  }
  const algorithms::OrderedLanes ordered = algorithms::orderLanes(steps, waits);
  for (size_t i = 0; i < ops.size(); ++i)
    if (ordered.waiter[i] == algorithms::OrderedLanes::kNobody)
      ops[i].erase();
    else
      ops[i].setKind(static_cast<ir::WaitKind>(ordered.kinds[i]));
  return mlir::success();
}

struct ElideWaits : impl::ElideWaitsBase<ElideWaits> {
  using ElideWaitsBase::ElideWaitsBase;

  void runOnOperation() override {
    ir::IterationOp iteration = getOperation();
    if (iteration.getPhase() != ir::Phase::Movement) {
      iteration.emitError() << "waits are elided in the movement phase, not in phase "
                            << stringifyPhase(iteration.getPhase());
      return signalPassFailure();
    }
    if (failed(elide(iteration)))
      return signalPassFailure();
    iteration.setPhase(ir::Phase::Lanes);
  }
};

} // namespace
} // namespace headrace::passes
