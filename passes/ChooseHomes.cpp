// SPDX-License-Identifier: Apache-2.0
#include "passes/Passes.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/StringExtras.h"

namespace headrace::passes {
#define GEN_PASS_DEF_CHOOSEHOMES
#include "passes/Passes.h.inc"

namespace {

// Gives `weight` its home on the host. A table that embed reads stays where it is and is read directly; for all others
// the content on the device takes the unit's place, from the first of them on.
void offload(ir::WeightOp weight) {
  mlir::Value buffer = weight.getBuffer();
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
  auto onDevice = ir::OnDeviceOp::create(builder, weight.getLoc(), here, buffer);
  buffer.replaceUsesWithIf(onDevice.getResult(), [&](mlir::OpOperand &use) {
    return use.getOwner() != onDevice && !llvm::isa<ir::EmbedOp>(use.getOwner());
  });
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
    int64_t modelLayers = 0;
    llvm::SmallVector<ir::WeightOp> weights;
    for (ir::WeightOp weight : iteration.block().getOps<ir::WeightOp>()) {
      weights.push_back(weight);
      modelLayers = std::max<int64_t>(modelLayers, weight.getLayer() + 1);
    }
    llvm::SmallBitVector away(static_cast<unsigned>(modelLayers));
    for (int64_t layer : layers) {
      if (layer < 0 || layer >= modelLayers) {
        iteration.emitError() << "layer " << layer << " cannot be offloaded: the model has layers 0 to "
                              << modelLayers - 1;
        return signalPassFailure();
      }
      away.set(static_cast<unsigned>(layer));
    }
    llvm::SmallDenseSet<int64_t> single;
    for (int64_t unit : units) {
      if (llvm::none_of(weights, [&](ir::WeightOp weight) { return weight.getUnit() == unit; })) {
        iteration.emitError() << "unit " << unit << " cannot be offloaded: the model has no such unit";
        return signalPassFailure();
      }
      single.insert(unit);
    }
    for (ir::WeightOp weight : weights) {
      const ir::UnitRole role = weight.getRole();
      if (single.contains(weight.getUnit()) ||
          (role == ir::UnitRole::Embedding ? embedding.getValue()
           : role == ir::UnitRole::Head    ? head.getValue()
                                           : away.test(static_cast<unsigned>(weight.getLayer()))))
        offload(weight);
    }
    iteration.setPhase(ir::Phase::Homes);
  }
};

} // namespace
} // namespace headrace::passes
