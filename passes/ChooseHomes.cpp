// SPDX-License-Identifier: Apache-2.0
#include "passes/Movables.h"
#include "passes/Passes.h"

namespace headrace::passes {
#define GEN_PASS_DEF_CHOOSEHOMES
#include "passes/Passes.h.inc"

namespace {

// Gives a movable its home on the host. A table that embed reads stays where it is and is read directly, and activation
// blocks are written there directly; for all others the content on the device takes the buffer's place, from the first
// of them on.
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
    if (auto append = llvm::dyn_cast<ir::ActAppendOp>(user)) {
      append.stepInfo().direct = true;
      append.getAppended().setType(ir::bufferType(buffer));
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
    return use.getOwner() != onDevice && !llvm::isa<ir::EmbedOp, ir::ActAppendOp>(use.getOwner());
  });
}

// A cache in parts: its first blocks stay, if there are any; the step that appends rows writes the mirror as well, and
// the tail's home where nothing else does.
class SplitCache {
public:
  // Of `all` blocks.
  SplitCache(ir::KvOp cache, int64_t all, uint64_t blockBytes)
      : cache_(cache), all_(all), blockBytes_(blockBytes), builder_(cache) {
    builder_.setInsertionPointAfter(cache);
    for (mlir::Operation *user : cache.getBuffer().getUsers())
      if (onCpu_ = llvm::dyn_cast<ir::AppendOp>(user); !onCpu_)
        append_ = llvm::cast<ir::RopeAppendOp>(user);
    if (onCpu_)
      return;
    for (mlir::Operation *user : append_.getAppended().front().getUsers())
      attention_ = llvm::cast<ir::AttentionOp>(user);
  }

  // Blocks [0, resident) stay, [resident, blocks) are at home on the host; [mirror, resident) are there as well, mirror
  // below 0: none. There are no others. `brings`: the tail is used; `appendsHome`: rows of it are appended at home as
  // well. `caches`: that those which stay are interleaved with; 0: they are not.
  void split(int64_t resident, int64_t blocks, int64_t mirror, bool brings, bool appendsHome, size_t caches) {
    const ir::BufferType whole = ir::bufferType(cache_.getBuffer());
    if (onCpu_) // which has all of it where it is at home
      return stay(home(ir::KvPart::Tail, blocks, whole));
    mlir::Value mirrored, tail, onDevice;
    if (mirror >= 0 && mirror < resident)
      mirrored = home(ir::KvPart::Mirror, resident - mirror, whole);
    if (resident < blocks)
      tail = home(ir::KvPart::Tail, blocks - resident, whole);
    if (resident > 0 && (resident < blocks || blocks < all_ || caches > 0))
      cache_.getBuffer().setType(type(ir::MemorySpace::Device, resident, whole));
    if (resident > 0 && caches > 0) {
      cache_.setBlockBytes(static_cast<int64_t>(blockBytes_));
      cache_.setStride(static_cast<int64_t>(caches * blockBytes_));
    }
    if (tail && brings)
      onDevice = ir::OnDeviceOp::create(builder_, append_.getLoc(),
                                        type(ir::MemorySpace::Device, blocks - resident, whole), tail);
    if (onDevice)
      onDevice.getDefiningOp()->moveBefore(append_);
    rewrite(resident > 0 ? cache_.getBuffer() : mlir::Value(), onDevice, brings && appendsHome ? tail : mlir::Value(),
            mirrored);
    if (resident == 0)
      cache_.erase();
  }

private:
  static ir::BufferType type(ir::MemorySpace space, uint64_t bytes, ir::BufferType like) {
    return ir::BufferType::get(like.getContext(), space, bytes, like.getEncoding());
  }
  ir::BufferType type(ir::MemorySpace space, int64_t blocks, ir::BufferType like) const {
    return type(space, static_cast<uint64_t>(blocks) * blockBytes_, like);
  }
  mlir::Value home(ir::KvPart part, int64_t blocks, ir::BufferType like) {
    return ir::KvOp::create(builder_, cache_.getLoc(), type(ir::MemorySpace::Host, blocks, like), cache_.getLayer(),
                            cache_.getMiniBatch(), part, ir::Address());
  }

  void stay(mlir::Value home) {
    mlir::Value appended = onCpu_.getAppended();
    onCpu_.getKvMutable().assign(home);
    appended.setType(home.getType());
    cache_.erase();
  }

  // The two steps again, with what they now use.
  void rewrite(mlir::Value blocks, mlir::Value tail, mlir::Value home, mlir::Value mirror) {
    llvm::SmallVector<mlir::Value> kv, homes;
    llvm::SmallVector<mlir::Type> appended;
    const auto with = [&](mlir::Value value, llvm::SmallVector<mlir::Value> &operands) {
      if (value) {
        operands.push_back(value);
        appended.push_back(value.getType());
      }
    };
    with(blocks, kv);
    with(tail, kv);
    if (const mlir::Value last = append_.getKv().back(); last != cache_.getBuffer()) // rebuilt
      with(last, kv);
    with(home, homes);
    with(mirror, homes);
    ir::StepInfo step = append_.getStep();
    step.direct = !homes.empty();
    builder_.setInsertionPoint(append_);
    auto append = ir::RopeAppendOp::create(builder_, append_.getLoc(), append_.getRotated().getType(), appended,
                                           append_.getMeta(), append_.getQkv(), kv, homes, append_.getUnit(),
                                           append_.getHeadNorms(), step);
    builder_.setInsertionPoint(attention_);
    auto attention = ir::AttentionOp::create(
        builder_, attention_.getLoc(), attention_.getOut().getType(), attention_.getMeta(), append.getRotated(),
        append.getAppended().take_front(kv.size()), attention_.getStep(), attention_.getAt(), attention_.getScratch());
    attention_.getOut().replaceAllUsesWith(attention.getOut());
    attention_.erase();
    append_.erase();
  }

  ir::KvOp cache_;
  const int64_t all_;
  const uint64_t blockBytes_;
  mlir::OpBuilder builder_;
  ir::AppendOp onCpu_; // else the two below
  ir::RopeAppendOp append_;
  ir::AttentionOp attention_;
};

llvm::StringRef nameOf(algorithms::MovableKind kind) { return algorithms::traitsOf(kind).name; }

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
        if (!chosen.isAway({kindOf(which), which.index}))
          continue;
        away.push_back(movable);
        found += which.miniBatch == 0; // caches of a layer are split alike
      }
    if (found != chosen.away.size()) {
      reportMissing(iteration, away);
      return signalPassFailure();
    }
    for (ir::MovableInterface movable : away)
      if (!llvm::isa<ir::KvOp>(movable.getOperation()))
        offload(movable);
    splitCaches(iteration);
    iteration.setPhase(ir::Phase::Homes);
  }

  // Of each cache, in this placement.
  int64_t blocksOfCaches() const { return kvBlocksHere > 0 ? kvBlocksHere : kvBlocks; }

  void splitCaches(ir::IterationOp iteration) {
    const algorithms::Residency &chosen = residency;
    const int64_t blocks = blocksOfCaches(), resident = chosen.firstKvBlockAway().value_or(blocks);
    if (resident == blocks && blocks == kvBlocks && (kvMirror < 0 || kvMirror >= resident) && !kvInterleaved)
      return;
    const bool brings = iteration.getKvBlocks() == 0;
    const bool appendsHome = writeBackOf(chosen, iteration.getIterationClass()) == algorithms::WriteBack::Mirror;
    llvm::SmallVector<ir::KvOp> caches(iteration.block().getOps<ir::KvOp>());
    for (ir::KvOp cache : caches)
      SplitCache(cache, kvBlocks, kvBlockBytes)
          .split(resident, blocks, kvMirror, brings, appendsHome, kvInterleaved ? caches.size() : 0);
  }

  // What can be at home elsewhere today, on the host and as it is read: caches from a block on, all else whole.
  mlir::LogicalResult check(ir::IterationOp iteration) {
    const algorithms::Residency &chosen = residency;
    if (const auto appends = iteration.block().getOps<ir::AppendOp>();
        !appends.empty() && chosen.firstKvBlockAway() != std::optional<int64_t>(0))
      return (*appends.begin()).emitError() << "appends by the CPU to a cache of which not all is at home on the host";
    if (kvBlocksHere > kvBlocks)
      return iteration.emitError() << "has " << kvBlocksHere.getValue() << " blocks of each cache, there are "
                                   << kvBlocks.getValue();
    for (const algorithms::Extent &extent : chosen.away) {
      if (extent.of.kind == algorithms::MovableKind::Kv) {
        if (const auto begin = static_cast<int64_t>(extent.begin); begin < 0 || begin >= blocksOfCaches())
          return iteration.emitError() << nameOf(extent.of.kind) << " " << extent.of.index
                                       << " cannot be split at block " << begin << ": there are " << blocksOfCaches();
        if (extent.begin == 0 && iteration.getKvBlocks() > 0)
          return iteration.emitError() << "brings no tail, and no block of " << nameOf(extent.of.kind) << " "
                                       << extent.of.index << " is at home on the device";
        continue;
      }
      if (!extent.isWhole() || extent.space != algorithms::Space::Host)
        return iteration.emitError() << nameOf(extent.of.kind) << " " << extent.of.index
                                     << " cannot be split, or be elsewhere than on the host: it moves whole";
    }
    if (const auto caches = llvm::count_if(iteration.block().getOps<ir::KvOp>(),
                                           [](ir::KvOp cache) { return cache.getMiniBatch() == 0; });
        chosen.firstKvBlockAway() &&
        llvm::count_if(chosen.away, [](const auto &e) { return e.of.kind == algorithms::MovableKind::Kv; }) != caches)
      return iteration.emitError() << "splits all of its " << caches << " caches or none";
    return mlir::success();
  }

  void reportMissing(ir::IterationOp iteration, llvm::ArrayRef<ir::MovableInterface> found) {
    const algorithms::Residency &chosen = residency;
    for (const algorithms::Extent &extent : chosen.away)
      if (llvm::none_of(found, [&](ir::MovableInterface movable) {
            const ir::Movable which = movable.movable();
            return kindOf(which) == extent.of.kind && which.index == extent.of.index;
          })) {
        iteration.emitError() << nameOf(extent.of.kind) << " " << extent.of.index
                              << " cannot be offloaded: the model has no such buffer";
        return;
      }
  }
};

} // namespace
} // namespace headrace::passes
