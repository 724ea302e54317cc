// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "passes/Movables.h"
#include "passes/Passes.h"
#include "llvm/ADT/DenseMap.h"

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
    mirrorBytes.clear();
    for (auto cache : iteration.block().getOps<ir::KvOp>())
      if (cache.getPart() == ir::KvPart::Mirror)
        mirrorBytes[cache.getLayer()] = cache.sizeInBytes();
    uint64_t end = 0; // of those that were laid one behind the other
    int64_t next = staging;
    for (mlir::Operation &op : iteration.block()) {
      if (auto of = llvm::dyn_cast<ir::StagingOp>(op); of && staging >= 0) {
        of.address().value = next;
        next += static_cast<int64_t>((of.sizeInBytes() + kAlign - 1) / kAlign * kAlign);
        continue;
      }
      auto movable = llvm::dyn_cast<ir::MovableInterface>(op);
      if (!llvm::isa<ir::StagingOp>(op) && (!movable || ir::bufferType(movable.atHome()).isOnDevice()))
        continue;
      auto persistent = llvm::cast<ir::PersistentInterface>(op);
      if (!movable && !at.empty()) {
        op.emitError() << "has no address in the host slab";
        return signalPassFailure();
      }
      if (failed(at.empty() ? behind(persistent, end) : stated(movable, persistent)))
        return signalPassFailure();
    }
  }

  mlir::LogicalResult behind(ir::PersistentInterface persistent, uint64_t &end) {
    persistent.address().value = static_cast<int64_t>(end);
    end += std::min(persistent.sizeInBytes(), kLargest);
    auto cache = llvm::dyn_cast<ir::KvOp>(persistent.getOperation());
    if (!cache || cache.getPart() == ir::KvPart::Tail) // the tail begins where the mirror ends
      end = (end + kAlign - 1) / kAlign * kAlign;
    if (end > kLargest)
      return persistent->getParentOp()->emitError() << "has more bytes at home on the host than can be addressed";
    return mlir::success();
  }

  mlir::LogicalResult stated(ir::MovableInterface movable, ir::PersistentInterface persistent) {
    const ir::Movable which = movable.movable();
    const auto known = at.find({{kindOf(which), which.index}, which.miniBatch});
    if (known == at.end())
      return movable.emitError() << "'" << which.name << "' has no address in the host slab";
    auto address = static_cast<int64_t>(known->second);
    if (auto cache = llvm::dyn_cast<ir::KvOp>(movable.getOperation()); cache && cache.getPart() == ir::KvPart::Tail)
      address += static_cast<int64_t>(mirrorBytes.lookup(which.index));
    persistent.address().value = address;
    return mlir::success();
  }

  llvm::DenseMap<int32_t, uint64_t> mirrorBytes; // of the iteration, by layer: what lies before a tail

  static constexpr uint64_t kAlign = 256, kLargest = uint64_t{1} << 62;
};

} // namespace
} // namespace headrace::passes
