// SPDX-License-Identifier: Apache-2.0
//
// homes -> movement. What is copied, and where to, is found by Movables; this pass decides after which step each
// copy is eligible, and writes it down:
//
//   paper, interval 2    embed | layer 0       | layer 1       | layer 2       | layer 3
//                              ^ copies of 1   ^ wait          ^ release 1, copies of 3
//
//   eager, two slots     a step's unit is released behind it; behind the releases that free its range stands the copy
//                        of the unit that lies there next. Copies keep the order of use, so a copy stands behind the
//                        one before it even where its own range has long been free. The same in a ring.
#include "passes/Movables.h"
#include "passes/Passes.h"

namespace headrace::passes {
#define GEN_PASS_DEF_INSERTMOVEMENT
#include "passes/Passes.h.inc"

namespace {

using ir::ByteRange;
using mlir::Value;

// Ops behind compute steps: what is inserted behind one step stays in the order of insertion. Step -1 is the start.
class BehindSteps {
public:
  BehindSteps(mlir::Operation *beforeFirst, const std::vector<mlir::Operation *> &steps)
      : builder_(beforeFirst->getContext()), last_(steps.size() + 1) {
    last_[0] = beforeFirst;
    std::copy(steps.begin(), steps.end(), last_.begin() + 1);
  }
  template <typename Op, typename... Args> Op insert(int64_t step, mlir::Location loc, Args &&...args) {
    mlir::Operation *&last = last_[static_cast<size_t>(step + 1)];
    builder_.setInsertionPointAfter(last);
    Op op = Op::create(builder_, loc, std::forward<Args>(args)...);
    last = op;
    return op;
  }

private:
  mlir::OpBuilder builder_;
  std::vector<mlir::Operation *> last_;
};

class Movement {
public:
  Movement(ir::IterationOp iteration, const Movables &offloaded, size_t wrapUnits, uint64_t wrapBytes)
      : iteration_(iteration), offloaded_(offloaded), wrapUnits_(wrapUnits), wrapBytes_(wrapBytes),
        paper_(iteration.getStartRule() == ir::StartRule::Paper), times_(rangeTimes(offloaded)) {}

  mlir::LogicalResult run() {
    if (offloaded_.units.empty())
      return mlir::success();
    if (failed(checkWrap()))
      return mlir::failure();
    declareSlots();
    const RangeTimes &times = times_;
    here_.resize(offloaded_.units.size());
    tokens_.resize(offloaded_.units.size());
    for (size_t i = 0; i < offloaded_.units.size(); ++i)
      if (isCarried(i))
        carry(i);
    releases_.resize(offloaded_.steps.size());
    for (size_t i = 0; i < offloaded_.units.size(); ++i)
      releases_[releaseStep(i)].push_back(i);

    // Where each copy stands: behind `step`, not before the copy ahead of it in the lane.
    std::vector<Copy> copies;
    int64_t behind = -1;
    for (size_t i = wrapUnits_; i < offloaded_.units.size(); ++i) {
      const int64_t free = paper_ ? slotFreeAfter(i) : times.freeAfter[i];
      behind = std::max({behind, free, paper_ ? eligibleAfter(offloaded_.units[i].item) : -1});
      copies.push_back({i, behind, false});
    }
    for (size_t i = 0; i < offloaded_.units.size() && isCarried(i); ++i) {
      behind = std::max(behind, times.tailFreeAfter[i]);
      copies.push_back({i, behind, true});
    }
    return emit(copies);
  }

private:
  struct Copy {
    size_t unit;
    int64_t step; // the compute step it stands behind; -1: none
    bool nextIteration;
  };

  const MovedBuffer &unit(size_t i) const { return offloaded_.units[i]; }
  Value source(size_t i) const { return ir::OnDeviceOp(unit(i).use).getSource(); }
  mlir::Location loc(size_t i) const { return ir::OnDeviceOp(unit(i).use).getLoc(); }
  llvm::StringRef name(size_t i) const { return source(i).getDefiningOp<ir::WeightOp>().getName(); }
  bool isCarried(size_t i) const { return i < wrapUnits_ || (i == wrapUnits_ && wrapBytes_ > 0); }
  uint64_t carriedBytes(size_t i) const { return i < wrapUnits_ ? unit(i).bytes : wrapBytes_; }
  Value slot(size_t i) const { return slots_[offloaded_.slotOf(unit(i))]; }
  uint32_t releaseStep(size_t i) const { return paper_ ? offloaded_.items[unit(i).item].lastStep : unit(i).lastUse; }

  mlir::LogicalResult checkWrap() {
    const size_t n = offloaded_.units.size();
    if (paper_ && (wrapUnits_ || wrapBytes_))
      return iteration_.emitError() << "nothing wraps around under the rule paper";
    if (wrapUnits_ > n || (wrapUnits_ == n && wrapBytes_))
      return iteration_.emitError() << "cannot wrap " << wrapUnits_ << " units and " << wrapBytes_
                                    << " bytes around: there are " << n << " offloaded units";
    if (wrapUnits_ < n && wrapBytes_ >= unit(wrapUnits_).bytes)
      return iteration_.emitError() << "cannot wrap " << wrapBytes_ << " bytes of '" << name(wrapUnits_)
                                    << "' around: it has " << unit(wrapUnits_).bytes << ", and part of it must be left";
    for (size_t i = 0; i < n && isCarried(i); ++i)
      if (times_.freeAfter[i] >= 0)
        return iteration_.emitError() << "'" << name(i)
                                      << "' cannot be there on entry: an earlier unit lies in its range of slot "
                                      << offloaded_.slotOf(unit(i));
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
    for (size_t s = 0; s < offloaded_.slots.slotBytes.size(); ++s) {
      const auto type = ir::SlotType::get(iteration_.getContext(), offloaded_.slots.slotBytes[s]);
      last = ir::SlotOp::create(builder, iteration_.getLoc(), type, static_cast<int32_t>(s), ir::Address());
      slots_.push_back(last.getSlot());
    }
    behind_.emplace(last, offloaded_.steps);
  }

  ir::BufferType heldType(size_t i, uint64_t held) const {
    const ir::BufferType home = ir::bufferType(source(i));
    return ir::BufferType::get(home.getContext(), ir::MemorySpace::Device, home.getBytes(), held, home.getEncoding());
  }

  void carry(size_t i) {
    here_[i] = behind_->insert<ir::CarryOp>(-1, loc(i), heldType(i, carriedBytes(i)), source(i), slot(i),
                                            ByteRange{0, carriedBytes(i)}, static_cast<int64_t>(unit(i).slotOffset));
  }

  ir::PrefetchOp prefetch(size_t i, int64_t step, Value destination, ByteRange range) {
    ir::StepInfo info;
    info.part = ir::Part::Movement;
    info.layer = offloaded_.items[unit(i).item].layer;
    info.linkBytes = info.deviceBytes = range.bytes;
    const int64_t offset =
        llvm::isa<ir::SlotType>(destination.getType()) ? static_cast<int64_t>(unit(i).slotOffset) : 0;
    return behind_->insert<ir::PrefetchOp>(step, loc(i), heldType(i, range.end()),
                                           ir::TokenType::get(iteration_.getContext()), source(i), destination, range,
                                           offset, info);
  }

  // Paper: the copies of an item are eligible when the first layer of its interval starts; for an interval of one, when
  // the layer before starts.
  int64_t eligibleAfter(uint32_t item) const {
    const MovedItem &self = offloaded_.items[item];
    if (item == 0)
      return self.firstStep == offloaded_.layersBegin ? -1 : static_cast<int64_t>(offloaded_.layersBegin) - 1;
    const MovedItem &before = offloaded_.items[item - 1];
    const bool adjacent = self.firstStep == before.lastStep + 1;
    return adjacent ? static_cast<int64_t>(before.firstStep) - 1 : before.lastStep;
  }

  // Paper: a slot is given up as a whole.
  int64_t slotFreeAfter(size_t i) const {
    for (uint32_t item = unit(i).item; item-- > 0;)
      if (offloaded_.slots.slotOf[item] == offloaded_.slotOf(unit(i)))
        return offloaded_.items[item].lastStep;
    return -1;
  }

  mlir::LogicalResult emit(const std::vector<Copy> &copies) {
    for (const Copy &copy : copies)
      if (!copy.nextIteration && copy.step >= static_cast<int64_t>(unit(copy.unit).firstUse))
        return iteration_.emitError() << "'" << name(copy.unit) << "' is used before its range is free";
    // The order of insertion decides what stands first behind a step: releases, which need their units; so units are
    // replaced as their copies are made, and the copies of a step follow its releases.
    size_t next = 0;
    std::vector<Value> out;
    uint32_t pacedItem = ~0u;
    for (int64_t step = -1; step < static_cast<int64_t>(offloaded_.steps.size()); ++step) {
      if (step >= 0)
        for (size_t i : releases_[static_cast<size_t>(step)])
          behind_->insert<ir::ReleaseOp>(step, loc(i), here_[i]);
      for (; next < copies.size() && copies[next].step == step; ++next) {
        const size_t i = copies[next].unit;
        if (paper_ && unit(i).item != pacedItem) {
          pacedItem = unit(i).item;
          pace(step, eligibleAfter(pacedItem), loc(i));
        }
        if (copies[next].nextIteration)
          out.push_back(prefetch(i, step, slot(i), {0, carriedBytes(i)}).getResult());
        else
          bring(i, step);
      }
    }
    for (size_t i = 0; i < offloaded_.units.size(); ++i)
      await(i);
    mlir::OpBuilder builder = mlir::OpBuilder::atBlockEnd(&iteration_.block());
    for (Value value : out)
      ir::CarryOutOp::create(builder, iteration_.getLoc(), value);
    for (const MovedBuffer &u : offloaded_.units)
      ir::OnDeviceOp(u.use).erase();
    return mlir::success();
  }

  void pace(int64_t behind, int64_t eligible, mlir::Location where) {
    if (eligible >= 0)
      behind_->insert<ir::WaitOp>(behind, where, offloaded_.steps[static_cast<size_t>(eligible)]->getResult(0),
                                  ir::WaitKind::Pacing, ir::Lane::H2D);
  }

  // This iteration's copy of a unit: all of it, or what the iteration before has left.
  void bring(size_t i, int64_t step) {
    const uint64_t from = isCarried(i) ? carriedBytes(i) : 0;
    ir::PrefetchOp op = prefetch(i, step, from ? here_[i] : slot(i), {from, unit(i).bytes - from});
    here_[i] = op.getResult();
    tokens_[i] = op.getToken();
  }

  // Paper: the first step of a layer waits for all of its units. Eager: the first step that uses a unit waits for that.
  void await(size_t i) {
    ir::OnDeviceOp use = unit(i).use;
    use.getResult().replaceAllUsesWith(here_[i]);
    if (!tokens_[i])
      return;
    const uint32_t step = paper_ ? offloaded_.items[unit(i).item].firstStep : unit(i).firstUse;
    mlir::OpBuilder builder(offloaded_.steps[step]);
    ir::WaitOp::create(builder, loc(i), tokens_[i], ir::WaitKind::Program, ir::Lane::Compute);
  }

  ir::IterationOp iteration_;
  const Movables &offloaded_;
  const size_t wrapUnits_;
  const uint64_t wrapBytes_;
  const bool paper_;
  const RangeTimes times_;
  std::vector<Value> slots_, here_, tokens_;  // by slot; by unit: its content on the device, its last copy's token
  std::vector<std::vector<size_t>> releases_; // units, by step
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
    if (wrapUnits < 0 || wrapBytes < 0) {
      iteration.emitError() << "cannot wrap " << wrapUnits.getValue() << " units and " << wrapBytes.getValue()
                            << " bytes around";
      return signalPassFailure();
    }
    mlir::FailureOr<Movables> offloaded = findMovables(iteration, {slots, ringBytes});
    if (failed(offloaded) || failed(Movement(iteration, *offloaded, static_cast<size_t>(wrapUnits.getValue()),
                                             static_cast<uint64_t>(wrapBytes.getValue()))
                                        .run()))
      return signalPassFailure();
    iteration.setPhase(ir::Phase::Movement);
  }
};

} // namespace
} // namespace headrace::passes
