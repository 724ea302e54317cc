// SPDX-License-Identifier: Apache-2.0
#include "passes/Passes.h"
#include "passes/PhaseRules.h"

namespace headrace::passes {
#define GEN_PASS_DEF_VERIFYPHASE
#include "passes/Passes.h.inc"

mlir::LogicalResult verifyMade(ir::IterationOp iteration) {
  for (mlir::Operation &op : iteration.block())
    for (const auto &[index, operand] : llvm::enumerate(op.getOperands())) {
      mlir::Operation *maker = operand ? operand.getDefiningOp() : nullptr;
      if (!maker) // printing the op would need its operands
        return mlir::emitError(op.getLoc()) << "'" << op.getName() << "' uses nothing as operand " << index;
      if (maker->getBlock() == op.getBlock() && maker->isBeforeInBlock(&op))
        continue;
      auto diagnostic = op.emitError() << "uses operand " << index << " before it is made";
      diagnostic.attachNote(maker->getLoc()) << "made here";
      return diagnostic;
    }
  return iteration.verifyRegions();
}

mlir::LogicalResult verifyHomes(ir::IterationOp iteration, ir::Phase phase) {
  for (mlir::Operation &op : iteration.block()) {
    if (phase < ir::Phase::Movement && llvm::isa<ir::PrefetchOp, ir::EvictOp, ir::CarryOp, ir::CarryOutOp, ir::ClaimOp,
                                                 ir::ReleaseOp, ir::WaitOp, ir::SlotOp>(op))
      return op.emitError() << "moves data in phase " << stringifyPhase(phase) << ", before movement is inserted";
    if (phase > ir::Phase::Model && llvm::isa<ir::AppendOp, ir::HostAttentionOp>(op) &&
        ir::bufferType(op.getOperand(2)).isOnDevice())
      return op.emitError() << "uses a cache on the device by the CPU, in phase " << stringifyPhase(phase);
    auto onDevice = llvm::dyn_cast<ir::OnDeviceOp>(op);
    const bool leaves = onDevice && onDevice.getSource().getDefiningOp<ir::ResidualOp>(); // as it was lowered
    if (onDevice && phase != ir::Phase::Homes && !(leaves && phase == ir::Phase::Model))
      return op.emitError() << "belongs to phase homes only, not to phase " << stringifyPhase(phase);
    if (phase == ir::Phase::Model && llvm::isa<ir::MovableInterface>(op) && !llvm::isa<ir::ResidualOp>(op) &&
        !ir::bufferType(op.getResult(0)).isOnDevice())
      return op.emitError() << "is at home off the device in phase model, before homes are chosen";
  }
  return mlir::success();
}

namespace {

struct VerifyPhase : impl::VerifyPhaseBase<VerifyPhase> {
  using VerifyPhaseBase::VerifyPhaseBase;

  void runOnOperation() override {
    if (failed(verify(getOperation())))
      signalPassFailure();
    markAllAnalysesPreserved();
  }

  mlir::LogicalResult verify(ir::IterationOp iteration) {
    const ir::Phase current = iteration.getPhase();
    if (!phase.empty()) {
      const std::optional<ir::Phase> required = ir::symbolizePhase(phase);
      if (!required)
        return iteration.emitError() << "cannot be in phase '" << phase
                                     << "': there are model, homes, movement, lanes and offsets";
      if (*required != current)
        return iteration.emitError() << "is in phase " << stringifyPhase(current) << ", not in phase " << phase;
    }
    if (failed(verifyMade(iteration)) || failed(verifyHomes(iteration, current)))
      return mlir::failure();
    if (current >= ir::Phase::Movement && failed(verifyMovement(iteration, current == ir::Phase::Movement)))
      return mlir::failure();
    if (current < ir::Phase::Lanes)
      return mlir::success();
    const mlir::FailureOr<StepOrder> order = StepOrder::derive(iteration);
    if (failed(order))
      return mlir::failure();
    return verifyAccesses(iteration, *order, current == ir::Phase::Offsets);
  }
};

} // namespace
} // namespace headrace::passes
