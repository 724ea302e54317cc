// SPDX-License-Identifier: Apache-2.0
#include "passes/Passes.h"

namespace headrace::passes {
#define GEN_PASS_DEF_PLACEONHOST
#include "passes/Passes.h.inc"

namespace {

struct PlaceOnHost : impl::PlaceOnHostBase<PlaceOnHost> {
  using PlaceOnHostBase::PlaceOnHostBase;

  void runOnOperation() override {
    ir::IterationOp iteration = getOperation();
    if (iteration.getPhase() != ir::Phase::Lanes) {
      iteration.emitError() << "the host slab is laid out in the lanes phase, not in phase "
                            << stringifyPhase(iteration.getPhase());
      return signalPassFailure();
    }
    for (mlir::Operation &op : iteration.block()) {
      auto movable = llvm::dyn_cast<ir::MovableInterface>(op);
      if (!movable || ir::bufferType(movable.atHome()).isOnDevice())
        continue;
      const ir::Movable which = movable.movable();
      if (which.kind != ir::MovableKind::Weight || static_cast<size_t>(which.index) >= addresses.size()) {
        op.emitError() << "'" << which.name << "' has no address in the host slab: there are " << addresses.size()
                       << ", by unit";
        return signalPassFailure();
      }
      llvm::cast<ir::PersistentInterface>(op).address().value = addresses[static_cast<size_t>(which.index)];
    }
  }
};

} // namespace
} // namespace headrace::passes
