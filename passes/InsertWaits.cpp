// SPDX-License-Identifier: Apache-2.0
//
// One walk in program order that remembers who wrote what and which ranges were given up, and puts a wait wherever a
// step depends on a step of another lane:
//
//   raw   a step uses what another wrote: an evict what an append wrote, a prefetch what was written back. A program
//         wait for it says where: it becomes the wait of the lanes that use it.
//   war   a copy goes to a range that was given up: it waits for the step before that, in each lane that used the
//         range; an in-place update waits for the readers of the old version, and so does what is written back.
//   waw   a copy goes to a range whose content another lane brought and nobody used.
//   A step that writes into a range that was claimed waits as a copy into it would.
//   pacing waits are there already.
#include "passes/Passes.h"
#include "passes/algorithms/RangeMap.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace headrace::passes {
#define GEN_PASS_DEF_INSERTWAITS
#include "passes/Passes.h.inc"

namespace {

using ir::Lane;
using ir::WaitKind;
using mlir::Value;

// What a wait for `step` names: the token of a movement step, the first buffer that a compute step wrote. Null for
// publish, after which nothing needs to wait.
Value eventOf(mlir::Operation *step) {
  if (auto prefetch = llvm::dyn_cast<ir::PrefetchOp>(step))
    return prefetch.getToken();
  if (auto evict = llvm::dyn_cast<ir::EvictOp>(step))
    return evict.getToken();
  return step->getNumResults() ? Value(step->getResult(0)) : Value();
}

Lane laneOf(mlir::Operation *step) { return *llvm::cast<ir::StepInterface>(step).stepInfo().lane; }

// What must have ended before a range that was given up is written.
struct Use {
  Value event;
  Lane lane;
  WaitKind kind;
};

class Waits {
public:
  explicit Waits(ir::IterationOp iteration) : iteration_(iteration), builder_(iteration.getOperation()) {}

  mlir::LogicalResult run() {
    for (mlir::Operation &op : llvm::make_early_inc_range(iteration_.block())) {
      if (auto wait = llvm::dyn_cast<ir::WaitOp>(op)) {
        if (wait.getKind() == WaitKind::Program)
          convert(wait);
      } else if (auto release = llvm::dyn_cast<ir::ReleaseOp>(op)) {
        giveUp(release.getBuffer());
      } else if (auto step = llvm::dyn_cast<ir::StepInterface>(op)) {
        if (!step.stepInfo().lane)
          return op.emitError() << "has no lane; assign lanes before waits are inserted";
        order(step);
        if (Value event = eventOf(&op))
          last_[static_cast<size_t>(laneOf(&op))] = event;
        if (auto evict = llvm::dyn_cast<ir::EvictOp>(op); evict && !evict.getKeeping())
          giveUp(evict.getBuffer()); // the evict is one of its readers
      }
    }
    return mlir::success();
  }

private:
  void insert(mlir::Operation *before, Value event, WaitKind kind, Lane lane) {
    builder_.setInsertionPoint(before);
    ir::WaitOp::create(builder_, before->getLoc(), event, kind, lane);
  }

  // `step` starts after `event`; raw waits for one event are needed once a lane.
  void await(mlir::Operation *step, Value event, WaitKind kind) {
    const Lane lane = laneOf(step);
    mlir::Operation *awaited = ir::stepOf(event);
    if (laneOf(awaited) == lane)
      return;
    if (kind == WaitKind::Raw && !readable_.insert({awaited, static_cast<unsigned>(lane)}).second)
      return;
    insert(step, event, kind, lane);
  }

  // A program wait holds up the steps behind it that use what the awaited step wrote.
  void convert(ir::WaitOp wait) {
    mlir::Operation *awaited = ir::stepOf(wait.getEvent());
    for (Value result : awaited->getResults()) {
      if (!llvm::isa<ir::BufferType>(result.getType()))
        continue;
      for (mlir::Operation *user : result.getUsers()) {
        auto step = llvm::dyn_cast<ir::StepInterface>(user);
        if (!step || !step.stepInfo().lane || *step.stepInfo().lane == laneOf(awaited))
          continue;
        const Lane lane = *step.stepInfo().lane;
        if (readable_.insert({awaited, static_cast<unsigned>(lane)}).second)
          insert(wait, wait.getEvent(), WaitKind::Raw, lane);
      }
    }
    wait.erase();
  }

  void order(ir::StepInterface step) {
    // Reads, and updates in place, of what a step wrote.
    for (Value operand : step->getOperands())
      if (llvm::isa<ir::BufferType>(operand.getType()))
        if (mlir::Operation *writer = ir::stepOf(operand))
          await(step, eventOf(writer), WaitKind::Raw);
    // Updates in place come after the readers of the old version.
    for (unsigned i = 0, n = step->getNumResults(); i < n; ++i) {
      const int tied = step.tiedOperand(i);
      if (tied < 0)
        continue;
      for (mlir::Operation *reader : step->getOperand(static_cast<unsigned>(tied)).getUsers())
        if (reader != step && llvm::isa<ir::StepInterface>(reader))
          if (Value event = eventOf(reader))
            await(step, event, WaitKind::War);
    }
    if (auto prefetch = llvm::dyn_cast<ir::PrefetchOp>(step.getOperation()))
      orderInSlot(step, prefetch.slot(), prefetch.offsetInSlot() + prefetch.getRange().offset,
                  prefetch.getRange().bytes);
    for (Value operand : step->getOperands())
      if (auto claim = operand.getDefiningOp<ir::ClaimOp>(); claim && claimed_.insert(claim).second)
        orderInSlot(step, claim.getSlot().getDefiningOp<ir::SlotOp>(), static_cast<uint64_t>(claim.getSlotOffset()),
                    ir::bufferType(operand).getBytes());
  }

  // What writes a range of a slot comes after whatever used it.
  void orderInSlot(mlir::Operation *step, ir::SlotOp in, uint64_t begin, uint64_t bytes) {
    const uint64_t end = begin + bytes;
    algorithms::RangeMap<std::vector<Use>> &slot = given_[in];
    llvm::SmallDenseSet<Value> seen;
    slot.forEach(begin, end, [&](uint64_t, uint64_t, const std::vector<Use> &uses) {
      for (const Use &use : uses)
        if (seen.insert(use.event).second)
          await(step, use.event, use.kind);
    });
    slot.erase(begin, end);
  }

  // The range of `buffer` is free once each lane that used it has come to where the program is now.
  void giveUp(Value buffer) {
    std::vector<Use> uses;
    bool lanes[ir::getMaxEnumValForLane() + 1] = {};
    for (Value part = buffer;;) {
      for (mlir::Operation *user : part.getUsers())
        if (llvm::isa<ir::StepInterface>(user) && !llvm::isa<ir::PrefetchOp>(user))
          lanes[static_cast<size_t>(laneOf(user))] = true;
      auto step = llvm::dyn_cast_or_null<ir::StepInterface>(part.getDefiningOp());
      const int tied = step ? step.tiedOperand(llvm::cast<mlir::OpResult>(part).getResultNumber()) : -1;
      if (tied < 0)
        break;
      part = step->getOperand(static_cast<unsigned>(tied));
    }
    for (size_t lane = 0; lane < std::size(lanes); ++lane)
      if (lanes[lane] && last_[lane])
        uses.push_back({last_[lane], static_cast<Lane>(lane), WaitKind::War});
    if (uses.empty())
      if (auto prefetch = buffer.getDefiningOp<ir::PrefetchOp>())
        uses.push_back({prefetch.getToken(), laneOf(prefetch), WaitKind::Waw});
    mlir::Operation *op = ir::rangeOf(buffer).getDefiningOp();
    const uint64_t held = ir::bufferType(buffer).getHeld();
    if (auto carry = llvm::dyn_cast<ir::CarryOp>(op)) {
      const auto offset = static_cast<uint64_t>(carry.getSlotOffset());
      given_[carry.getSlot().getDefiningOp()].assign(offset, offset + held, std::move(uses));
    } else if (auto claim = llvm::dyn_cast<ir::ClaimOp>(op)) {
      const auto offset = static_cast<uint64_t>(claim.getSlotOffset());
      given_[claim.getSlot().getDefiningOp()].assign(offset, offset + held, std::move(uses));
    } else if (auto prefetch = llvm::dyn_cast<ir::PrefetchOp>(op)) {
      const uint64_t offset = prefetch.offsetInSlot();
      given_[prefetch.slot()].assign(offset, offset + held, std::move(uses));
    }
  }

  ir::IterationOp iteration_;
  mlir::OpBuilder builder_;
  Value last_[ir::getMaxEnumValForLane() + 1];                                      // by lane: the last step's event
  llvm::DenseMap<mlir::Operation *, algorithms::RangeMap<std::vector<Use>>> given_; // by slot
  llvm::DenseSet<mlir::Operation *> claimed_;                                       // claims that a step has written
  llvm::DenseSet<std::pair<mlir::Operation *, unsigned>> readable_; // (step, lane that has waited for it)
};

struct InsertWaits : impl::InsertWaitsBase<InsertWaits> {
  using InsertWaitsBase::InsertWaitsBase;

  void runOnOperation() override {
    if (getOperation().getPhase() != ir::Phase::Movement) {
      getOperation().emitError() << "waits are inserted in the movement phase, not in phase "
                                 << stringifyPhase(getOperation().getPhase());
      return signalPassFailure();
    }
    if (failed(Waits(getOperation()).run()))
      signalPassFailure();
  }
};

} // namespace
} // namespace headrace::passes
