// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

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
    uint64_t end = 0; // of those that were laid one behind the other
    for (mlir::Operation &op : iteration.block()) {
      auto movable = llvm::dyn_cast<ir::MovableInterface>(op);
      if (!movable || ir::bufferType(movable.atHome()).isOnDevice())
        continue;
      auto persistent = llvm::cast<ir::PersistentInterface>(op);
      if (addresses.empty()) {
        persistent.address().value = static_cast<int64_t>(end);
        end += std::min((persistent.sizeInBytes() + kAlign - 1) / kAlign * kAlign, kLargest);
        if (end > kLargest) {
          iteration.emitError() << "has more bytes at home on the host than can be addressed";
          return signalPassFailure();
        }
        continue;
      }
      const ir::Movable which = movable.movable();
      if (which.kind != ir::MovableKind::Weight || static_cast<size_t>(which.index) >= addresses.size()) {
        op.emitError() << "'" << which.name << "' has no address in the host slab: there are " << addresses.size()
                       << ", by unit";
        return signalPassFailure();
      }
      persistent.address().value = addresses[static_cast<size_t>(which.index)];
    }
  }

  static constexpr uint64_t kAlign = 256, kLargest = uint64_t{1} << 62;
};

} // namespace
} // namespace headrace::passes
