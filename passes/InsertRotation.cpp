// SPDX-License-Identifier: Apache-2.0
//
// homes -> movement, for one iteration of a cycle in which tails of caches rotate through places. Five layers, four
// places, phase 0 (algorithms/RotatePlaces.h):
//
//   entry     embed | layer 0 | layer 1          | layer 2 | layer 3          | layer 4 | head
//   0 1 3 4                   ^ 2 into 0's place ^ wait              ^ 0 into 3's, for the next iteration    exit 2 1 0
//   4
//
// Where tails are written back, what an iteration writes of one goes home behind its layer (dirty), or all of it once
// its place is given up (all); until then it is carried on as dirty.
//
// Of several mini-batches each has its tail of each layer, which are visited one behind the other: what is called a
// layer here is then a layer's mini-batch.
//
// Weights move as under the rule eager. Copies stand in the order of the steps that they are for: one that has been
// possible for long stands behind one that is needed before it.
#include <algorithm>
#include <optional>
#include <utility>

#include "passes/BehindSteps.h"
#include "passes/Movables.h"
#include "passes/Passes.h"
#include "passes/algorithms/RotationOf.h"

namespace headrace::passes {
#define GEN_PASS_DEF_INSERTROTATION
#include "passes/Passes.h.inc"

namespace {

using algorithms::PlaceMove;
using algorithms::WriteBack;
using ir::ByteRange;
using mlir::Value;

class RotatingMovement {
public:
  RotatingMovement(ir::IterationOp iteration, const Movables &movables, const algorithms::Rotation &rotation,
                   const algorithms::Residency &residency)
      : iteration_(iteration), movables_(movables), rotation_(rotation),
        phase_(static_cast<uint64_t>(iteration.getCyclePhase())),
        writeBack_(writeBackOf(residency, iteration.getIterationClass())), times_(rangeTimes(movables)) {
    const algorithms::Wrap &wrap = residency.wrap;
    cut_ = (iteration.getIterationClass() == ir::IterationClass::Decode ? wrap.decode : wrap.mixed)
               .value_or(algorithms::Cut());
    for (size_t i = 0; i < movables.moved.size(); ++i)
      (moved(i).resizable() ? tails_ : weights_).push_back(i);
  }

  mlir::LogicalResult run() {
    if (failed(checkCut()))
      return mlir::failure();
    declareSlots();
    here_.resize(movables_.moved.size());
    tokens_.resize(movables_.moved.size());
    carryIn();
    planCopies();
    return emit();
  }

private:
  // What lies in a place: a tail as it was brought or carried in; `used`: its layer's steps have run on it.
  struct Held {
    int32_t layer = -1; // none
    Value value;
    bool used = false, dirty = false;
  };
  struct Copy {
    size_t moved;
    int64_t behind;                // the compute step it stands behind; -1: none
    uint64_t due;                  // the step that needs it, counted on into the next iteration
    std::optional<PlaceMove> move; // of a tail
    bool forNext;
  };

  const MovedBuffer &moved(size_t i) const { return movables_.moved[i]; }
  int64_t stepOf(int32_t after) const { return after < 0 ? -1 : static_cast<int64_t>(tail(after).lastUse); }
  const MovedBuffer &tail(int32_t layer) const { return moved(tails_[static_cast<size_t>(layer)]); }
  Value source(size_t i) const { return ir::OnDeviceOp(moved(i).use).getSource(); }
  mlir::Location loc(size_t i) const { return ir::OnDeviceOp(moved(i).use).getLoc(); }
  Value place(int32_t place) const { return slots_[movables_.firstPlace + static_cast<uint32_t>(place)]; }
  // Of the weights, in order of use: what is there on entry.
  uint64_t carriedBytes(size_t weight) const {
    return weight < cut_.units ? moved(weights_[weight]).bytes : weight == cut_.units ? cut_.bytes : 0;
  }

  mlir::LogicalResult checkCut() {
    const size_t n = weights_.size();
    if (cut_.units > n || (cut_.units == n && cut_.bytes > 0))
      return iteration_.emitError() << "cannot wrap " << cut_.units << " movables and " << cut_.bytes
                                    << " bytes around: there are " << n << " weights that are moved";
    if (cut_.units < n && cut_.bytes >= moved(weights_[cut_.units]).bytes)
      return iteration_.emitError() << "cannot wrap " << cut_.bytes << " bytes of '" << moved(weights_[cut_.units]).name
                                    << "' around: it has " << moved(weights_[cut_.units]).bytes
                                    << ", and part of it must be left";
    for (size_t weight = 0; weight < n && carriedBytes(weight) > 0; ++weight)
      if (times_.freeAfter[weights_[weight]] >= 0)
        return iteration_.emitError() << "'" << moved(weights_[weight]).name
                                      << "' cannot be there on entry: an earlier one lies in its range of slot "
                                      << movables_.slotOf(moved(weights_[weight]));
    return mlir::success();
  }

  void declareSlots() {
    mlir::Block &block = iteration_.block();
    mlir::OpBuilder builder(iteration_.getContext());
    auto it = block.begin();
    while (it != block.end() && llvm::isa<ir::PersistentInterface>(*it))
      ++it;
    builder.setInsertionPoint(&block, it);
    for (size_t s = 0; s < movables_.slots.slotBytes.size(); ++s) {
      const auto type = ir::SlotType::get(iteration_.getContext(), movables_.slots.slotBytes[s]);
      slots_.push_back(
          ir::SlotOp::create(builder, iteration_.getLoc(), type, static_cast<int32_t>(s), ir::Address()).getSlot());
    }
    behind_.emplace(slots_.back().getDefiningOp(), movables_.steps);
  }

  ir::BufferType heldType(size_t i, uint64_t held) const {
    const ir::BufferType home = ir::bufferType(source(i));
    return ir::BufferType::get(home.getContext(), ir::MemorySpace::Device, home.getBytes(), held, home.getEncoding());
  }

  Value carry(size_t i, Value slot, uint64_t bytes, int64_t offset, bool dirty) {
    here_[i] =
        behind_
            ->insert<ir::CarryOp>(-1, loc(i), heldType(i, bytes), source(i), slot, ByteRange{0, bytes}, offset, dirty)
            .getResult();
    return here_[i];
  }

  void carryIn() {
    for (size_t weight = 0; weight < weights_.size() && carriedBytes(weight) > 0; ++weight) {
      const size_t i = weights_[weight];
      carry(i, slots_[movables_.slotOf(moved(i))], carriedBytes(weight), static_cast<int64_t>(moved(i).slotOffset),
            false);
    }
    const std::vector<int32_t> &entry = rotation_.phases[phase_].entry;
    for (int32_t p = 0; p < static_cast<int32_t>(entry.size()); ++p) {
      const int32_t layer = entry[static_cast<size_t>(p)];
      if (layer < 0) {
        held_.emplace_back();
        continue;
      }
      // Written in iterations before, and not written back until it is given up.
      const bool dirty = writeBack_ == WriteBack::All && rotation_.visitedOnEntry(phase_, p);
      held_.push_back(
          {layer, carry(tails_[static_cast<size_t>(layer)], place(p), tail(layer).bytes, 0, dirty), false, dirty});
    }
  }

  // In the order of what they are for, each behind the step that frees its range and not before the one ahead of it.
  void planCopies() {
    const uint64_t next = movables_.steps.size();
    for (size_t weight = 0; weight < weights_.size(); ++weight) {
      const size_t i = weights_[weight];
      if (carriedBytes(weight) < moved(i).bytes)
        copies_.push_back({i, times_.freeAfter[i], moved(i).firstUse, {}, false});
      if (carriedBytes(weight) > 0)
        copies_.push_back({i, times_.tailFreeAfter[i], next + moved(i).firstUse, {}, true});
    }
    for (const PlaceMove &move : rotation_.phases[phase_].moves)
      copies_.push_back({tails_[static_cast<size_t>(move.layer)], stepOf(move.after),
                         (move.forNext() ? next : 0) + tail(move.layer).firstUse, move, move.forNext()});
    std::stable_sort(copies_.begin(), copies_.end(), [](const Copy &a, const Copy &b) { return a.due < b.due; });
    int64_t behind = -1;
    for (Copy &copy : copies_)
      copy.behind = behind = std::max(behind, copy.behind);
  }

  ir::PrefetchOp prefetch(size_t i, int64_t step, Value home, Value destination, int64_t offset, ByteRange range) {
    ir::StepInfo info;
    info.part = ir::Part::Movement;
    info.layer = movables_.items[moved(i).item].layer;
    info.miniBatch = moved(i).miniBatch;
    info.linkBytes = info.deviceBytes = range.bytes;
    info.resizable = moved(i).resizable();
    return behind_->insert<ir::PrefetchOp>(step, loc(i), heldType(i, range.end()),
                                           ir::TokenType::get(iteration_.getContext()), home, destination, range,
                                           llvm::isa<ir::SlotType>(destination.getType()) ? offset : 0, info);
  }

  // What the last step that uses a movable finds: here, or as a step has updated it.
  Value lastOnDevice(size_t i) const {
    const Value use = ir::OnDeviceOp(moved(i).use).getResult(), last = lastVersion(use);
    return last == use ? here_[i] : last;
  }

  // The home as a copy for this iteration or the next finds it: the steps of a tail's layer write it, or it is written
  // back behind them.
  Value homeOf(size_t i, bool forNext) const {
    return forNext || writeBack_ != WriteBack::Mirror ? lastVersion(source(i)) : source(i);
  }

  mlir::LogicalResult emit() {
    for (const Copy &copy : copies_)
      if (!copy.forNext && copy.behind >= static_cast<int64_t>(moved(copy.moved).firstUse))
        return iteration_.emitError() << "'" << moved(copy.moved).name << "' is used before its range is free";
    std::vector<std::pair<Value, bool>> out; // what is carried out, and whether it is dirty
    auto copy = copies_.begin();
    for (int64_t step = -1; step < static_cast<int64_t>(movables_.steps.size()); ++step) {
      visited(step);
      for (size_t i : weights_)
        if (static_cast<int64_t>(moved(i).lastUse) == step)
          behind_->insert<ir::ReleaseOp>(step, loc(i), lastOnDevice(i));
      for (const algorithms::PlaceExit &exit : rotation_.phases[phase_].exits)
        if (stepOf(exit.after) == step)
          giveUp(held_[static_cast<size_t>(exit.place)], step);
      for (; copy != copies_.end() && copy->behind == step; ++copy)
        if (copy->move)
          bringTail(*copy);
        else
          bringWeight(*copy, out);
    }
    for (const Held &held : held_)
      if (held.layer >= 0)
        out.emplace_back(valueOf(held), held.dirty);
    for (size_t i = 0; i < movables_.moved.size(); ++i)
      await(i);
    mlir::OpBuilder builder = mlir::OpBuilder::atBlockEnd(&iteration_.block());
    for (const auto &[value, dirty] : out)
      ir::CarryOutOp::create(builder, iteration_.getLoc(), value, dirty);
    for (const MovedBuffer &buffer : movables_.moved)
      ir::OnDeviceOp(buffer.use).erase();
    return mlir::success();
  }

  Value valueOf(const Held &held) const {
    return held.used ? lastOnDevice(tails_[static_cast<size_t>(held.layer)]) : held.value;
  }

  // A layer's last step that uses its tail has run.
  void visited(int64_t step) {
    for (Held &held : held_) {
      if (held.layer < 0 || static_cast<int64_t>(tail(held.layer).lastUse) != step)
        continue;
      held.used = true;
      held.dirty |= writeBack_ == WriteBack::All;
      if (writeBack_ == WriteBack::Dirty)
        writeBack(held, step, /*keeping=*/true);
    }
  }

  void giveUp(Held &held, int64_t step) {
    if (held.dirty)
      writeBack(held, step, /*keeping=*/false);
    else
      behind_->insert<ir::ReleaseOp>(step, loc(tails_[static_cast<size_t>(held.layer)]), valueOf(held));
    held = {};
  }

  void writeBack(const Held &held, int64_t step, bool keeping) {
    const size_t i = tails_[static_cast<size_t>(held.layer)];
    ir::StepInfo info;
    info.part = ir::Part::Movement;
    info.layer = movables_.items[moved(i).item].layer;
    info.miniBatch = moved(i).miniBatch;
    info.linkBytes = info.deviceBytes = moved(i).bytes;
    info.resizable = true;
    const Value home = lastVersion(source(i));
    behind_->insert<ir::EvictOp>(step, loc(i), home.getType(), ir::TokenType::get(iteration_.getContext()),
                                 valueOf(held), home, ByteRange{0, moved(i).bytes},
                                 writeBack_ == WriteBack::All ? ir::WriteBack::All : ir::WriteBack::Dirty, keeping,
                                 info);
  }

  void bringTail(const Copy &copy) {
    const auto &[i, step, due, move, forNext] = copy;
    ir::PrefetchOp op = prefetch(i, step, homeOf(i, forNext), place(move->place), 0, {0, moved(i).bytes});
    held_[static_cast<size_t>(move->place)] = {move->layer, op.getResult(), false, false};
    if (forNext)
      return;
    here_[i] = op.getResult();
    tokens_[i] = op.getToken();
  }

  void bringWeight(const Copy &copy, std::vector<std::pair<Value, bool>> &out) {
    const size_t i = copy.moved;
    const auto weight = static_cast<size_t>(std::lower_bound(weights_.begin(), weights_.end(), i) - weights_.begin());
    const uint64_t carried = carriedBytes(weight);
    const Value slot = slots_[movables_.slotOf(moved(i))];
    const auto offset = static_cast<int64_t>(moved(i).slotOffset);
    if (copy.forNext) {
      out.emplace_back(prefetch(i, copy.behind, source(i), slot, offset, {0, carried}).getResult(), false);
      return;
    }
    ir::PrefetchOp op =
        prefetch(i, copy.behind, source(i), carried > 0 ? here_[i] : slot, offset, {carried, moved(i).bytes - carried});
    here_[i] = op.getResult();
    tokens_[i] = op.getToken();
  }

  // The first step that uses what is brought waits for it.
  void await(size_t i) {
    ir::OnDeviceOp(moved(i).use).getResult().replaceAllUsesWith(here_[i]);
    if (!tokens_[i])
      return;
    mlir::OpBuilder builder(movables_.steps[moved(i).firstUse]);
    ir::WaitOp::create(builder, loc(i), tokens_[i], ir::WaitKind::Program, ir::Lane::Compute);
  }

  ir::IterationOp iteration_;
  const Movables &movables_;
  const algorithms::Rotation &rotation_;
  const uint64_t phase_;
  const WriteBack writeBack_;
  const RangeTimes times_; // of weights
  algorithms::Cut cut_;
  std::vector<size_t> weights_, tails_;      // in order of use; of tails so by layer, then mini-batch
  std::vector<Value> slots_, here_, tokens_; // by slot; by movable: what its layer finds, its copy's token
  std::vector<Held> held_;                   // by place
  std::vector<Copy> copies_;
  std::optional<BehindSteps> behind_;
};

struct InsertRotation : impl::InsertRotationBase<InsertRotation> {
  using InsertRotationBase::InsertRotationBase;

  void runOnOperation() override {
    if (failed(insert(getOperation())))
      signalPassFailure();
  }

  mlir::LogicalResult insert(ir::IterationOp iteration) {
    if (iteration.getPhase() != ir::Phase::Homes)
      return iteration.emitError() << "movement is inserted in the homes phase, not in phase "
                                   << stringifyPhase(iteration.getPhase());
    if (!residency.rotates())
      return iteration.emitError() << "has no places that rotate: the residency names none (kv-places)";
    const mlir::FailureOr<Movables> movables = findMovables(iteration, residency);
    if (failed(movables))
      return mlir::failure();
    const auto tails = std::count_if(movables->items.begin(), movables->items.end(),
                                     [](const MovedItem &i) { return i.kind == ir::MovableKind::Kv; });
    if (tails <= residency.kv().places())
      return iteration.emitError() << "needs fewer places than the " << tails
                                   << " tails of caches that rotate through them, got " << residency.kv().places()
                                   << ": nothing would move";
    const std::optional<algorithms::Rotation> rotation = algorithms::rotationOf(residency, tails);
    if (!rotation)
      return iteration.emitError() << "has no cycle: " << tails << " tails that are swapped through "
                                   << residency.kv().places() << " places do not come back to where they were";
    if (phase >= 0) {
      iteration.setCyclePhase(phase);
      iteration.setPeriod(static_cast<int64_t>(rotation->period()));
    }
    if (static_cast<uint64_t>(iteration.getPeriod()) != rotation->period() ||
        iteration.getCyclePhase() >= iteration.getPeriod())
      return iteration.emitError() << "is number " << iteration.getCyclePhase() << " of " << iteration.getPeriod()
                                   << ", but " << tails << " tails in " << residency.kv().places()
                                   << " places take a cycle of " << rotation->period();
    if (failed(RotatingMovement(iteration, *movables, *rotation, residency).run()))
      return mlir::failure();
    iteration.setPhase(ir::Phase::Movement);
    return mlir::success();
  }
};

} // namespace
} // namespace headrace::passes
