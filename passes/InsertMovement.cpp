// SPDX-License-Identifier: Apache-2.0
//
// homes -> movement. What is copied, and where to, is found by Movables; this pass decides after which step each copy
// is eligible, and writes it down:
//
//   paper, interval 2    embed | layer 0       | layer 1       | layer 2       | layer 3
//                              ^ copies of 1   ^ wait          ^ release 1, copies of 3
//
//   ahead 1              embed | layer 0       | layer 1       | layer 2       | layer 3
//                              1 is there              ^ release 1, copies of 3        ^ copies of 1 for the next
//
//   eager, two slots     a step's movable is released behind it; behind the releases that free its range stands the
//                        copy of what lies there next. Copies keep the order of use, so a copy stands behind the one
//                        before it even where its own range has long been free. The same in a ring.
//
//   tails, two slots     of caches that are written back: an evict in place of the release
//                        h2d   [ 2 ][ 3 ][ 4 ][ 5 ]
//                        d2h   [ 1 ][ 2 ][ 3 ][ 4 ]     4 goes where 2 was, while 3 is written back
//
//   activations          of layers that have theirs on the host: two slots, brought as any other, and given up behind
//                        the step that recomputes keys and values. None of it is there on entry: the rows of the
//                        iteration before are among what is brought.
//
//   residual streams     three slots. An evict behind each layer of a mini-batch, a copy for its next as soon as that
//   is
//                        home, before others that may not start earlier. What embed writes claims its range. None of it
//                        is there on entry.
#include <algorithm>
#include <iterator>
#include <limits>

#include "passes/BehindSteps.h"
#include "passes/Movables.h"
#include "passes/Passes.h"
#include "llvm/ADT/DenseMap.h"

namespace headrace::passes {
#define GEN_PASS_DEF_INSERTMOVEMENT
#include "passes/Passes.h.inc"

namespace {

using ir::ByteRange;
using mlir::Value;

// What is there on entry: whole movables, then bytes of the one after them.
algorithms::Cut carriedOnEntry(const algorithms::Residency &residency, const Movables &movables,
                               ir::IterationClass iterationClass) {
  if (residency.start.rule == algorithms::StartRule::Ahead) {
    algorithms::Cut first;
    for (size_t item = 0; item < movables.items.size() && item < static_cast<size_t>(residency.start.items); ++item)
      first.units += movables.items[item].moved;
    return first;
  }
  switch (iterationClass) {
  case ir::IterationClass::Decode:
    return residency.wrap.decode.value_or(algorithms::Cut());
  case ir::IterationClass::Mixed:
    return residency.wrap.mixed.value_or(algorithms::Cut());
  case ir::IterationClass::Transition:
    break;
  }
  return {};
}

class Movement {
public:
  Movement(ir::IterationOp iteration, const Movables &movables, const algorithms::Residency &residency)
      : iteration_(iteration), movables_(movables), start_(residency.start),
        writeBack_(writeBackOf(residency, iteration.getIterationClass())), times_(rangeTimes(movables)) {
    const algorithms::Cut carried = carriedOnEntry(residency, movables, iteration.getIterationClass());
    wrapUnits_ = carried.units;
    wrapBytes_ = carried.bytes;
  }

  mlir::LogicalResult run() {
    if (movables_.moved.empty())
      return mlir::success();
    // What may be there on entry, counted in order of use; that is what a cut counts, too.
    for (const MovedBuffer &buffer : movables_.moved)
      position_.push_back(buffer.mayBeCarried() ? carriable_++ : kNever);
    if (failed(checkWrap()))
      return mlir::failure();
    declareSlots();
    here_.resize(movables_.moved.size());
    tokens_.resize(movables_.moved.size());
    for (size_t i = 0; i < movables_.moved.size(); ++i)
      if (isCarried(i))
        carry(i);
    releases_.resize(movables_.steps.size());
    for (size_t i = 0; i < movables_.moved.size(); ++i)
      releases_[releaseStep(i)].push_back(i);

    // Where each copy stands: behind `step`, not before the copy ahead of it in the lane.
    std::vector<Copy> copies;
    int64_t behind = -1;
    for (size_t i = 0; i < movables_.moved.size(); ++i) {
      if (moved(i).kind == ir::MovableKind::Residual || position_[i] < wrapUnits_)
        continue;
      behind = std::max({behind, freeAfter(i), eligibleAfter(moved(i).item, false)});
      copies.push_back({i, behind, false});
    }
    for (size_t i = 0; i < movables_.moved.size(); ++i) {
      if (!isCarried(i))
        continue;
      behind = std::max({behind, times_.tailFreeAfter[i], eligibleAfter(moved(i).item, true)});
      copies.push_back({i, behind, true});
    }
    return emit(withStreams(copies));
  }

private:
  struct Copy {
    size_t moved;
    int64_t step; // the compute step it stands behind; -1: none
    bool nextIteration;
  };

  // Residual streams come back among the others as soon as they are home and a slot is free: one that the layer behind
  // the next needs must not keep that one's weights waiting. Each copy still stands before all that wait for steps
  // behind its first use.
  std::vector<Copy> withStreams(const std::vector<Copy> &others) {
    std::vector<Copy> streams, copies;
    llvm::DenseMap<Value, int64_t> leftAfter; // by home: behind the layer before
    int64_t behind = -1;
    for (size_t i = 0; i < movables_.moved.size(); ++i) {
      if (moved(i).kind != ir::MovableKind::Residual)
        continue;
      const auto left = leftAfter.try_emplace(source(i), -1).first;
      if (moved(i).made) {
        claims_.push_back(i);
      } else {
        behind = std::max({behind, freeAfter(i), left->second});
        streams.push_back({i, behind, false});
      }
      left->second = moved(i).lastUse;
    }
    std::merge(streams.begin(), streams.end(), others.begin(), others.end(), std::back_inserter(copies),
               [](const Copy &a, const Copy &b) { return a.step < b.step; });
    return copies;
  }

  const MovedBuffer &moved(size_t i) const { return movables_.moved[i]; }
  // Where it is at home; a cache's tail for the next iteration with the rows that this one appends.
  Value source(size_t i) const { return ir::OnDeviceOp(moved(i).use).getSource(); }
  mlir::Location loc(size_t i) const { return ir::OnDeviceOp(moved(i).use).getLoc(); }
  llvm::StringRef name(size_t i) const { return moved(i).name; }
  bool isCarried(size_t i) const { return position_[i] < wrapUnits_ || (position_[i] == wrapUnits_ && wrapBytes_ > 0); }
  uint64_t carriedBytes(size_t i) const { return position_[i] < wrapUnits_ ? moved(i).bytes : wrapBytes_; }
  Value slot(size_t i) const { return slots_[movables_.slotOf(moved(i))]; }
  uint32_t releaseStep(size_t i) const {
    return start_.byMovable() ? moved(i).lastUse : movables_.items[moved(i).item].lastStep;
  }

  mlir::LogicalResult checkWrap() {
    const size_t n = carriable_;
    if (wrapUnits_ > n || (wrapUnits_ == n && wrapBytes_))
      return iteration_.emitError() << "cannot wrap " << wrapUnits_ << " movables and " << wrapBytes_
                                    << " bytes around: there are " << n << " that are moved";
    const auto last = static_cast<size_t>(llvm::find(position_, wrapUnits_) - position_.begin()); // carried in part
    if (wrapUnits_ < n && wrapBytes_ >= moved(last).bytes)
      return iteration_.emitError() << "cannot wrap " << wrapBytes_ << " bytes of '" << name(last)
                                    << "' around: it has " << moved(last).bytes << ", and part of it must be left";
    if (wrapBytes_ > 0 && moved(last).resizable())
      return iteration_.emitError() << "cannot wrap a part of '" << name(last)
                                    << "' around: how much of it is in use is not known before";
    for (size_t i = 0; i < movables_.moved.size(); ++i)
      if (isCarried(i) && times_.freeAfter[i] >= 0)
        return iteration_.emitError() << "'" << name(i)
                                      << "' cannot be there on entry: an earlier one lies in its range of slot "
                                      << movables_.slotOf(moved(i));
    return mlir::success();
  }

  void declareSlots() {
    mlir::Block &block = iteration_.block();
    mlir::OpBuilder builder(iteration_.getContext());
    auto it = block.begin();
    while (it != block.end() && llvm::isa<ir::PersistentInterface>(*it))
      ++it;
    builder.setInsertionPoint(&block, it);
    ir::SlotOp last;
    for (size_t s = 0; s < movables_.slots.slotBytes.size(); ++s) {
      const auto type = ir::SlotType::get(iteration_.getContext(), movables_.slots.slotBytes[s]);
      last = ir::SlotOp::create(builder, iteration_.getLoc(), type, static_cast<int32_t>(s), ir::Address());
      slots_.push_back(last.getSlot());
    }
    behind_.emplace(last, movables_.steps);
  }

  ir::BufferType heldType(size_t i, uint64_t held) const {
    const ir::BufferType home = ir::bufferType(source(i));
    return ir::BufferType::get(home.getContext(), ir::MemorySpace::Device, home.getBytes(), held, home.getEncoding());
  }

  void carry(size_t i) {
    here_[i] = behind_->insert<ir::CarryOp>(-1, loc(i), heldType(i, carriedBytes(i)), source(i), slot(i),
                                            ByteRange{0, carriedBytes(i)}, static_cast<int64_t>(moved(i).slotOffset));
  }

  ir::PrefetchOp prefetch(size_t i, int64_t step, Value source, Value destination, ByteRange range) {
    ir::StepInfo info;
    info.part = ir::Part::Movement;
    info.layer = movables_.items[moved(i).item].layer;
    info.miniBatch = moved(i).miniBatch;
    info.linkBytes = info.deviceBytes = range.bytes;
    info.resizable = moved(i).resizable();
    const int64_t offset =
        llvm::isa<ir::SlotType>(destination.getType()) ? static_cast<int64_t>(moved(i).slotOffset) : 0;
    return behind_->insert<ir::PrefetchOp>(step, loc(i), heldType(i, range.end()),
                                           ir::TokenType::get(iteration_.getContext()), source, destination, range,
                                           offset, info);
  }

  // The step behind which the start lets an item's copies begin, for the next iteration those of its tail; -1: any.
  int64_t eligibleAfter(uint32_t item, bool nextIteration) const {
    switch (start_.rule) {
    case algorithms::StartRule::Eager:
      return -1;
    case algorithms::StartRule::Paper:
      return paperAfter(item);
    case algorithms::StartRule::Ahead:
      return aheadAfter(item, nextIteration);
    }
    llvm_unreachable("every rule says when a copy may start");
  }

  // When the first layer of its interval starts; for an interval of one, when the layer before starts.
  int64_t paperAfter(uint32_t item) const {
    const MovedItem &self = movables_.items[item];
    if (item == 0)
      return self.firstStep == movables_.layersBegin ? -1 : static_cast<int64_t>(movables_.layersBegin) - 1;
    const MovedItem &before = movables_.items[item - 1];
    const bool adjacent = self.firstStep == before.lastStep + 1;
    return adjacent ? static_cast<int64_t>(before.firstStep) - 1 : before.lastStep;
  }

  // When the item so many before it on the circle has ended; 0: when the step before its own has.
  int64_t aheadAfter(uint32_t item, bool nextIteration) const {
    const auto count = movables_.items.size();
    const auto items = std::min<size_t>(static_cast<size_t>(start_.items), count);
    if (items == 0)
      return static_cast<int64_t>(movables_.items[item].firstStep) - 1;
    return nextIteration ? movables_.items[item + count - items].lastStep : movables_.items[item - items].lastStep;
  }

  // When what is moved has its range for itself.
  int64_t freeAfter(size_t i) const {
    if (start_.byMovable())
      return times_.freeAfter[i];
    // A slot is given up as a whole.
    for (uint32_t item = moved(i).item; item-- > 0;)
      if (movables_.slots.slotOf[item] == movables_.slotOf(moved(i)))
        return movables_.items[item].lastStep;
    return -1;
  }

  mlir::LogicalResult emit(const std::vector<Copy> &copies) {
    for (const Copy &copy : copies)
      if (!copy.nextIteration && copy.step >= static_cast<int64_t>(moved(copy.moved).firstUse))
        return iteration_.emitError() << "'" << name(copy.moved) << "' is used before its range is free";
    // The order of insertion decides what stands first behind a step: releases, which need what was there; so
    // on_device is replaced as copies are made, and the copies of a step follow its releases.
    size_t next = 0;
    std::vector<Value> out;
    std::optional<std::pair<uint32_t, bool>> paced; // the item, and whether for the next iteration
    for (int64_t step = -1; step < static_cast<int64_t>(movables_.steps.size()); ++step) {
      if (step >= 0)
        for (size_t i : releases_[static_cast<size_t>(step)])
          giveUp(i, step);
      for (const size_t i : claims_)
        if (static_cast<int64_t>(moved(i).firstUse) == step + 1)
          claim(i, step);
      for (; next < copies.size() && copies[next].step == step; ++next) {
        const auto [i, at, nextIteration] = copies[next];
        if (!start_.byMovable() && paced != std::pair(moved(i).item, nextIteration)) {
          paced.emplace(moved(i).item, nextIteration);
          pace(step, eligibleAfter(moved(i).item, nextIteration), loc(i));
        }
        if (nextIteration)
          out.push_back(prefetch(i, step, lastVersion(source(i)), slot(i), {0, carriedBytes(i)}).getResult());
        else
          bring(i, step);
      }
    }
    for (size_t i = 0; i < movables_.moved.size(); ++i)
      await(i);
    mlir::OpBuilder builder = mlir::OpBuilder::atBlockEnd(&iteration_.block());
    for (Value value : out)
      ir::CarryOutOp::create(builder, iteration_.getLoc(), value);
    for (const MovedBuffer &buffer : movables_.moved)
      ir::OnDeviceOp(buffer.use).erase();
    return mlir::success();
  }

  void claim(size_t i, int64_t step) {
    here_[i] = behind_->insert<ir::ClaimOp>(step, loc(i), ir::OnDeviceOp(moved(i).use).getType(), source(i), slot(i),
                                            static_cast<int64_t>(moved(i).slotOffset));
  }

  void pace(int64_t behind, int64_t eligible, mlir::Location where) {
    // A wait names what a step wrote; behind one that writes nothing (publish) the step before it has to do.
    while (eligible >= 0 && movables_.steps[static_cast<size_t>(eligible)]->getNumResults() == 0)
      --eligible;
    if (eligible >= 0)
      behind_->insert<ir::WaitOp>(behind, where, movables_.steps[static_cast<size_t>(eligible)]->getResult(0),
                                  ir::WaitKind::Pacing, ir::Lane::H2D);
  }

  // What the last step that uses a movable finds: here, or as a step has updated it.
  Value lastOnDevice(size_t i) const {
    const Value use = ir::OnDeviceOp(moved(i).use).getResult(), last = lastVersion(use);
    return last == use ? here_[i] : last;
  }

  // What the iteration has appended to a tail goes home first: the copy may run as soon as that has been written. So
  // does a residual stream, but for the last layer's, which ends there.
  void giveUp(size_t i, int64_t step) {
    const Value buffer = lastOnDevice(i);
    if (!moved(i).writtenBack) {
      behind_->insert<ir::ReleaseOp>(step, loc(i), buffer);
      return;
    }
    ir::StepInfo info;
    info.part = ir::Part::Movement;
    info.layer = movables_.items[moved(i).item].layer;
    info.miniBatch = moved(i).miniBatch;
    info.linkBytes = info.deviceBytes = moved(i).bytes;
    info.resizable = moved(i).resizable();
    const Value home = lastVersion(source(i));
    behind_->insert<ir::EvictOp>(step, loc(i), home.getType(), ir::TokenType::get(iteration_.getContext()), buffer,
                                 home, ByteRange{0, moved(i).bytes},
                                 writeBack_ == algorithms::WriteBack::Dirty && moved(i).kind == ir::MovableKind::Kv
                                     ? ir::WriteBack::Dirty
                                     : ir::WriteBack::All,
                                 /*keeping=*/false, info);
  }

  // This iteration's copy of a movable: all of it, or what the iteration before has left.
  void bring(size_t i, int64_t step) {
    const uint64_t from = isCarried(i) ? carriedBytes(i) : 0;
    const bool stream = moved(i).kind == ir::MovableKind::Residual; // of this iteration
    const Value home = stream ? lastVersion(source(i)) : source(i);
    ir::PrefetchOp op = prefetch(i, step, home, from ? here_[i] : slot(i), {from, moved(i).bytes - from});
    here_[i] = op.getResult();
    tokens_[i] = op.getToken();
  }

  // Item by item the first step of a layer waits for all that is moved of it; else the first step that uses a movable
  // waits for that.
  void await(size_t i) {
    ir::OnDeviceOp use = moved(i).use;
    use.getResult().replaceAllUsesWith(here_[i]);
    if (!tokens_[i])
      return;
    const uint32_t step = start_.byMovable() ? moved(i).firstUse : movables_.items[moved(i).item].firstStep;
    mlir::OpBuilder builder(movables_.steps[step]);
    ir::WaitOp::create(builder, loc(i), tokens_[i], ir::WaitKind::Program, ir::Lane::Compute);
  }

  ir::IterationOp iteration_;
  const Movables &movables_;
  const algorithms::Start start_;
  const algorithms::WriteBack writeBack_;
  const RangeTimes times_;
  static constexpr size_t kNever = std::numeric_limits<size_t>::max();
  std::vector<size_t> position_;              // by movable: among those that may be there on entry
  size_t carriable_ = 0;                      // how many may
  std::vector<size_t> claims_;                // movables that a step makes
  size_t wrapUnits_ = 0;                      // there on entry: so many whole, ...
  uint64_t wrapBytes_ = 0;                    // ... and so many bytes of the one after them
  std::vector<Value> slots_, here_, tokens_;  // by slot; by movable: its content on the device, its last copy's token
  std::vector<std::vector<size_t>> releases_; // movables, by step
  std::optional<BehindSteps> behind_;
};

struct InsertMovement : impl::InsertMovementBase<InsertMovement> {
  using InsertMovementBase::InsertMovementBase;

  void runOnOperation() override {
    ir::IterationOp iteration = getOperation();
    if (iteration.getPhase() != ir::Phase::Homes) {
      iteration.emitError() << "movement is inserted in the homes phase, not in phase "
                            << stringifyPhase(iteration.getPhase());
      return signalPassFailure();
    }
    const mlir::FailureOr<Movables> movables = findMovables(iteration, residency);
    if (failed(movables) || failed(Movement(iteration, *movables, residency).run()))
      return signalPassFailure();
    iteration.setPhase(ir::Phase::Movement);
  }
};

} // namespace
} // namespace headrace::passes
