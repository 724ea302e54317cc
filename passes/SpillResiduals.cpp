// SPDX-License-Identifier: Apache-2.0
//
// model -> homes, before homes are chosen for weights and caches: the residual stream of each mini-batch leaves the
// device behind a layer and comes back for the next, as a compiler spills a register.
//
//   before   embed 0 | embed 1 | layer 0 of 0 | layer 0 of 1 | layer 1 of 0 | layer 1 of 1 | head 0 | head 1
//   after    embed 0 | layer 0 of 0 | embed 1 | layer 0 of 1 | layer 1 of 0 | layer 1 of 1 | head 0 | head 1
//            ^ on_device            ^ on_device              ^ on_device    ^ on_device
//
// What is embedded goes on into the first layer, so that it need not leave in between, and behind the last the rows
// that the head wants are gathered: these few stay. A layer finds what the layer before it has made of the buffer,
// however that got home and back.
#include "passes/SpillResiduals.h"
#include "passes/Passes.h"

namespace headrace::passes {
#define GEN_PASS_DEF_SPILLRESIDUALS
#include "passes/Passes.h.inc"

namespace {

using mlir::Value;

// The steps of a mini-batch that pass its residual stream on, in order of the program.
struct Stream {
  ir::EmbedOp embed;
  std::vector<llvm::SmallVector<mlir::Operation *>> layers; // the steps of each
  ir::GatherRowsOp gather;
};

// By mini-batch; fails where the iteration is not the pass over layers that lowering makes.
mlir::FailureOr<std::vector<Stream>> findStreams(ir::IterationOp iteration) {
  std::vector<Stream> streams;
  for (mlir::Operation &op : iteration.block()) {
    auto step = llvm::dyn_cast<ir::StepInterface>(op);
    if (!step || llvm::isa<ir::PublishOp>(op))
      continue;
    const ir::StepInfo &info = step.stepInfo();
    if (streams.size() <= info.miniBatch)
      streams.resize(info.miniBatch + size_t{1});
    Stream &stream = streams[info.miniBatch];
    if (info.layer >= 0) {
      if (stream.layers.size() <= static_cast<size_t>(info.layer))
        stream.layers.resize(static_cast<size_t>(info.layer) + 1);
      stream.layers[static_cast<size_t>(info.layer)].push_back(&op);
    } else if (auto embed = llvm::dyn_cast<ir::EmbedOp>(op)) {
      stream.embed = embed;
    } else if (auto gather = llvm::dyn_cast<ir::GatherRowsOp>(op)) {
      stream.gather = gather;
    }
  }
  for (const Stream &stream : streams)
    if (!stream.embed || !stream.gather || stream.layers.empty() ||
        llvm::any_of(stream.layers, [](const auto &steps) { return steps.empty(); }))
      return iteration.emitError()
             << "has no residual stream from an embedding through every layer to rows of the head";
  return streams;
}

class Spill {
public:
  Spill(ir::IterationOp iteration, Stream &stream, int32_t miniBatch)
      : stream_(stream), builder_(iteration.getContext()), type_(ir::bufferType(stream.embed.getX())) {
    mlir::Block &block = iteration.block();
    auto it = block.begin();
    while (it != block.end() && llvm::isa<ir::PersistentInterface>(*it))
      ++it;
    builder_.setInsertionPoint(&block, it);
    home_ = ir::ResidualOp::create(
        builder_, stream.embed.getLoc(),
        ir::BufferType::get(iteration.getContext(), ir::MemorySpace::Host, type_.getBytes(), type_.getEncoding()),
        miniBatch, ir::Address());
  }

  void run() {
    Value x = embed();
    for (size_t layer = 0; layer < stream_.layers.size(); ++layer) {
      if (layer > 0)
        x = comeBack(x, stream_.layers[layer]);
      x = lastOf(x, stream_.layers[layer]);
    }
    stream_.gather->moveAfter(stream_.layers.back().back());
  }

private:
  Value onDevice(mlir::Operation *before) {
    builder_.setInsertionPoint(before);
    return ir::OnDeviceOp::create(builder_, before->getLoc(), type_, home_);
  }

  // Directly before the first layer.
  Value embed() {
    const Value into = onDevice(stream_.layers.front().front());
    ir::EmbedOp old = stream_.embed;
    auto embed = ir::EmbedOp::create(builder_, old.getLoc(), old.getX().getType(), old.getNextHistory().getType(),
                                     old.getMeta(), old.getUnit(), old.getSampled(), old.getHistory(), into,
                                     old.getTable(), old.getPositions(), old.getStep(), ir::Address());
    old->replaceAllUsesWith(embed);
    old.erase();
    return embed.getX();
  }

  // What the layer's steps use of the stream is what is brought.
  Value comeBack(Value x, llvm::ArrayRef<mlir::Operation *> steps) {
    const Value back = onDevice(steps.front());
    x.replaceUsesWithIf(back, [&](mlir::OpOperand &use) { return llvm::is_contained(steps, use.getOwner()); });
    return back;
  }

  // The version that the steps leave.
  static Value lastOf(Value x, llvm::ArrayRef<mlir::Operation *> steps) {
    for (mlir::Operation *op : steps)
      if (auto linear = llvm::dyn_cast<ir::LinearOp>(op); linear && linear.getResidual() == x)
        x = linear.getY();
    return x;
  }

  Stream &stream_;
  mlir::OpBuilder builder_;
  const ir::BufferType type_;
  Value home_;
};

struct SpillResiduals : impl::SpillResidualsBase<SpillResiduals> {
  using SpillResidualsBase::SpillResidualsBase;

  void runOnOperation() override {
    if (getOperation().getPhase() != ir::Phase::Model) {
      getOperation().emitError() << "residual streams are spilled in the model phase, not in phase "
                                 << stringifyPhase(getOperation().getPhase());
      return signalPassFailure();
    }
    if (failed(spillResiduals(getOperation())))
      signalPassFailure();
  }
};

} // namespace

mlir::LogicalResult spillResiduals(ir::IterationOp iteration) {
  mlir::FailureOr<std::vector<Stream>> streams = findStreams(iteration);
  if (failed(streams))
    return mlir::failure();
  for (size_t i = 0; i < streams->size(); ++i)
    Spill(iteration, (*streams)[i], static_cast<int32_t>(i)).run();
  return mlir::success();
}

} // namespace headrace::passes
