// SPDX-License-Identifier: Apache-2.0
#include "passes/Passes.h"

namespace headrace::passes {
#define GEN_PASS_DEF_CHOOSEHOMES
#include "passes/Passes.h.inc"

namespace {

static_assert(static_cast<int>(ir::MovableKind::Weight) == static_cast<int>(algorithms::MovableKind::Weight) &&
              static_cast<int>(ir::MovableKind::Kv) == static_cast<int>(algorithms::MovableKind::Kv) &&
              static_cast<int>(ir::MovableKind::Act) == static_cast<int>(algorithms::MovableKind::Act) &&
              ir::getMaxEnumValForMovableKind() == 2);

// Gives a movable its home on the host. A table that embed reads stays where it is and is read directly; for all others
// the content on the device takes the buffer's place, from the first of them on.
void offload(ir::MovableInterface movable) {
  mlir::Value buffer = movable.atHome();
  const ir::BufferType here = ir::bufferType(buffer);
  buffer.setType(ir::BufferType::get(here.getContext(), ir::MemorySpace::Host, here.getBytes(), here.getEncoding()));

  mlir::Operation *first = nullptr;
  for (mlir::Operation *user : buffer.getUsers()) {
    if (auto embed = llvm::dyn_cast<ir::EmbedOp>(user)) {
      embed.stepInfo().direct = true;
      continue;
    }
    if (!first || user->isBeforeInBlock(first))
      first = user;
  }
  if (!first)
    return;
  mlir::OpBuilder builder(first);
  auto onDevice = ir::OnDeviceOp::create(builder, movable.getLoc(), here, buffer);
  buffer.replaceUsesWithIf(onDevice.getResult(), [&](mlir::OpOperand &use) {
    return use.getOwner() != onDevice && !llvm::isa<ir::EmbedOp>(use.getOwner());
  });
}

llvm::StringRef nameOf(algorithms::MovableKind kind) {
  return stringifyMovableKind(static_cast<ir::MovableKind>(kind));
}

struct ChooseHomes : impl::ChooseHomesBase<ChooseHomes> {
  using ChooseHomesBase::ChooseHomesBase;

  void runOnOperation() override {
    ir::IterationOp iteration = getOperation();
    if (iteration.getPhase() != ir::Phase::Model) {
      iteration.emitError() << "homes are chosen in the model phase, not in phase "
                            << stringifyPhase(iteration.getPhase());
      return signalPassFailure();
    }
    if (failed(check(iteration)))
      return signalPassFailure();
    const algorithms::Residency &chosen = residency;
    llvm::SmallVector<ir::MovableInterface> away;
    size_t found = 0; // movables come in any order, extents ascending
    for (mlir::Operation &op : iteration.block())
      if (auto movable = llvm::dyn_cast<ir::MovableInterface>(op)) {
        const ir::Movable which = movable.movable();
        if (!chosen.isAway({static_cast<algorithms::MovableKind>(which.kind), which.index}))
          continue;
        away.push_back(movable);
        ++found;
      }
    if (found != chosen.away.size()) {
      reportMissing(iteration, away);
      return signalPassFailure();
    }
    for (ir::MovableInterface movable : away)
      offload(movable);
    iteration.setPhase(ir::Phase::Homes);
  }

  // What can be at home elsewhere today: whole weights, on the host, as they are read.
  mlir::LogicalResult check(ir::IterationOp iteration) {
    const algorithms::Residency &chosen = residency;
    for (const algorithms::Extent &extent : chosen.away) {
      if (extent.of.kind != algorithms::MovableKind::Weight)
        return iteration.emitError() << nameOf(extent.of.kind) << " " << extent.of.index
                                     << " cannot be at home off the device: nothing brings it back yet";
      if (!extent.isWhole() || extent.space != algorithms::Space::Host)
        return iteration.emitError() << nameOf(extent.of.kind) << " " << extent.of.index
                                     << " cannot be split, or be elsewhere than on the host: it moves whole";
    }
    return mlir::success();
  }

  void reportMissing(ir::IterationOp iteration, llvm::ArrayRef<ir::MovableInterface> found) {
    const algorithms::Residency &chosen = residency;
    for (const algorithms::Extent &extent : chosen.away)
      if (llvm::none_of(found, [&](ir::MovableInterface movable) {
            const ir::Movable which = movable.movable();
            return static_cast<algorithms::MovableKind>(which.kind) == extent.of.kind && which.index == extent.of.index;
          })) {
        iteration.emitError() << nameOf(extent.of.kind) << " " << extent.of.index
                              << " cannot be offloaded: the model has no such buffer";
        return;
      }
  }
};

} // namespace
} // namespace headrace::passes
