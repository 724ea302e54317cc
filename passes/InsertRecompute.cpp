// SPDX-License-Identifier: Apache-2.0
//
// In the model phase: where blocks of the context keep activations (HybridServe, section 4.1), the steps that fill them
// and that make keys and values of them again.
//
//   before   norm | qkv | rope_append | attention | ...
//   after    recompute_kv | norm | act_append | qkv | rope_append | attention | ...
//
// recompute_kv stands before all other steps of its layer: it needs nothing of this iteration but the layer's qkv
// weights and activations, so that it may start as soon as both are on the device, beside whatever is copied then.
#include "passes/InsertRecompute.h"

#include "passes/Passes.h"
#include "llvm/ADT/DenseMap.h"

namespace headrace::passes {
#define GEN_PASS_DEF_INSERTRECOMPUTE
#include "passes/Passes.h.inc"

namespace {

using mlir::Value;
constexpr const char *kNoLayer = "is of a layer that does not go from a norm through qkv to attention";

using Turn = std::pair<int32_t, int32_t>; // layer, mini-batch

// What the pass looks for in a layer of a mini-batch.
struct LayerSteps {
  mlir::Operation *first = nullptr;
  ir::LinearOp qkv;
  ir::RopeAppendOp append;
  ir::AttentionOp attention;

  ir::NormOp norm() { return qkv.getX().getDefiningOp<ir::NormOp>(); }
  bool complete() { return qkv && append && attention && norm(); }
};

llvm::DenseMap<Turn, LayerSteps> findLayers(ir::IterationOp iteration) {
  llvm::DenseMap<Turn, LayerSteps> layers;
  for (mlir::Operation &op : iteration.block()) {
    auto step = llvm::dyn_cast<ir::StepInterface>(op);
    if (!step || step.stepInfo().layer < 0)
      continue;
    LayerSteps &of = layers[{step.stepInfo().layer, step.stepInfo().miniBatch}];
    if (of.first == nullptr)
      of.first = &op;
    if (auto linear = llvm::dyn_cast<ir::LinearOp>(op); linear && linear.getRole() == ir::UnitRole::Qkv)
      of.qkv = linear;
    else if (auto append = llvm::dyn_cast<ir::RopeAppendOp>(op))
      of.append = append;
    else if (auto attention = llvm::dyn_cast<ir::AttentionOp>(op))
      of.attention = attention;
  }
  return layers;
}

class Insertion {
public:
  Insertion(ir::ActOp act, LayerSteps &layer, const RecomputeAmounts &amounts)
      : act_(act), layer_(layer), amounts_(amounts), builder_(layer.append.getContext()) {}

  void run() {
    const Value recomputed = recompute();
    keep();
    takeBehindTheCache(recomputed);
  }

private:
  ir::StepInfo step(uint64_t flops, uint64_t deviceBytes) {
    ir::StepInfo info = layer_.norm().getStep();
    info.flops = flops;
    info.deviceBytes = deviceBytes;
    return info;
  }

  ir::BufferType recomputedType() {
    return ir::BufferType::get(builder_.getContext(), ir::MemorySpace::Device, amounts_.recomputedBytes,
                               ir::bufferType(layer_.append.getKv().front()).getEncoding());
  }

  Value recompute() {
    ir::LinearOp qkv = layer_.qkv;
    ir::Workspace scratch;
    scratch.bytes = amounts_.workspaceBytes;
    builder_.setInsertionPoint(layer_.first);
    return ir::RecomputeKvOp::create(builder_, qkv.getLoc(), recomputedType(), qkv.getMeta(), act_, qkv.getUnit(),
                                     qkv.getWeight(), qkv.getBias(), layer_.append.getHeadNorms(),
                                     step(amounts_.flops, amounts_.deviceBytes), ir::Address(), scratch);
  }

  void keep() {
    ir::NormOp norm = layer_.norm();
    builder_.setInsertionPointAfter(norm);
    ir::ActAppendOp::create(builder_, norm.getLoc(), act_.getBuffer().getType(), norm.getMeta(), norm.getY(), act_,
                            step(0, amounts_.keepDeviceBytes));
  }

  // The two steps again.
  void takeBehindTheCache(Value recomputed) {
    ir::RopeAppendOp old = layer_.append;
    llvm::SmallVector<Value> kv(old.getKv());
    kv.push_back(recomputed);
    builder_.setInsertionPoint(old);
    auto append = ir::RopeAppendOp::create(builder_, old.getLoc(), old.getRotated().getType(),
                                           mlir::ValueRange(kv).getTypes(), old.getMeta(), old.getQkv(), kv,
                                           mlir::ValueRange(), old.getUnit(), old.getHeadNorms(), old.getStep());
    ir::AttentionOp attention = layer_.attention;
    builder_.setInsertionPoint(attention);
    auto attended = ir::AttentionOp::create(builder_, attention.getLoc(), attention.getOut().getType(),
                                            attention.getMeta(), append.getRotated(), append.getAppended(),
                                            attention.getStep(), attention.getAt(), attention.getScratch());
    attention.getOut().replaceAllUsesWith(attended.getOut());
    attention.erase();
    old.erase();
  }

  ir::ActOp act_;
  LayerSteps &layer_;
  const RecomputeAmounts &amounts_;
  mlir::OpBuilder builder_;
};

struct InsertRecompute : impl::InsertRecomputeBase<InsertRecompute> {
  using InsertRecomputeBase::InsertRecomputeBase;

  void runOnOperation() override {
    if (getOperation().getPhase() != ir::Phase::Model) {
      getOperation().emitError() << "recomputation is inserted in the model phase, not in phase "
                                 << stringifyPhase(getOperation().getPhase());
      return signalPassFailure();
    }
    if (failed(insertRecompute(getOperation(), {recomputedBytes, workspaceBytes, flops, deviceBytes, keepDeviceBytes})))
      signalPassFailure();
  }
};

} // namespace

mlir::LogicalResult insertRecompute(ir::IterationOp iteration, const RecomputeAmounts &amounts) {
  llvm::DenseMap<Turn, LayerSteps> layers = findLayers(iteration);
  llvm::SmallVector<ir::ActOp> acts(iteration.block().getOps<ir::ActOp>());
  for (ir::ActOp act : acts) {
    LayerSteps &layer = layers[{act.getLayer(), act.getMiniBatch()}];
    if (!layer.complete())
      return act.emitOpError() << kNoLayer;
    if (!act.getBuffer().use_empty())
      return act.emitOpError() << "is used already: recomputation is inserted once";
    Insertion(act, layer, amounts).run();
  }
  return mlir::success();
}

} // namespace headrace::passes
