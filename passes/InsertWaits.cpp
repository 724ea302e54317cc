// SPDX-License-Identifier: Apache-2.0
//
// Puts a wait wherever a step depends on a step of another lane (passes/algorithms/OrderLanes.cpp says when). A program
// wait says where, and goes; pacing waits are there already.
#include "passes/Passes.h"
#include "passes/ProgramOf.h"

namespace headrace::passes {
#define GEN_PASS_DEF_INSERTWAITS
#include "passes/Passes.h.inc"

namespace {

static_assert(static_cast<int>(algorithms::WaitKind::Raw) == static_cast<int>(ir::WaitKind::Raw) &&
              static_cast<int>(algorithms::WaitKind::War) == static_cast<int>(ir::WaitKind::War) &&
              static_cast<int>(algorithms::WaitKind::Waw) == static_cast<int>(ir::WaitKind::Waw) &&
              static_cast<int>(algorithms::WaitKind::Pacing) == static_cast<int>(ir::WaitKind::Pacing));

// What a wait for `step` names: the token of a movement step, the first buffer that a compute step wrote.
mlir::Value eventOf(mlir::Operation *step) {
  if (auto prefetch = llvm::dyn_cast<ir::PrefetchOp>(step))
    return prefetch.getToken();
  if (auto evict = llvm::dyn_cast<ir::EvictOp>(step))
    return evict.getToken();
  return step->getResult(0);
}

struct InsertWaits : impl::InsertWaitsBase<InsertWaits> {
  using InsertWaitsBase::InsertWaitsBase;

  void runOnOperation() override {
    if (getOperation().getPhase() != ir::Phase::Movement) {
      getOperation().emitError() << "waits are inserted in the movement phase, not in phase "
                                 << stringifyPhase(getOperation().getPhase());
      return signalPassFailure();
    }
    const mlir::FailureOr<ProgramOf> program = programOf(getOperation());
    if (failed(program))
      return signalPassFailure();
    mlir::OpBuilder builder(getOperation().getOperation());
    for (const algorithms::Wait &wait : algorithms::waitsOf(*program)) {
      if (wait.kind == algorithms::WaitKind::Pacing)
        continue; // there already
      mlir::Operation *const before = program->operations[wait.before];
      builder.setInsertionPoint(before);
      ir::WaitOp::create(builder, before->getLoc(), eventOf(program->operations[wait.of]),
                         static_cast<ir::WaitKind>(wait.kind), static_cast<ir::Lane>(wait.lane));
    }
    for (size_t i = 0; i < program->ops.size(); ++i)
      if (program->ops[i].kind == algorithms::Program::Kind::Await)
        program->operations[i]->erase();
  }
};

} // namespace
} // namespace headrace::passes
