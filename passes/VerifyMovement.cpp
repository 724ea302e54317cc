// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <tuple>

#include "passes/PhaseRules.h"
#include "passes/algorithms/RangeMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"

namespace headrace::passes {
namespace {

using mlir::failure;
using mlir::LogicalResult;
using mlir::success;
using mlir::Value;

std::string nameOf(Value buffer) {
  auto movable = ir::bufferOf(buffer).getDefiningOp<ir::MovableInterface>();
  return movable ? movable.movable().name : "a buffer";
}

// Plays the program's order. A range is known by the value that made it (ir::Ranges).
class MovementRules {
public:
  MovementRules(ir::IterationOp iteration, bool inProgramOrder)
      : iteration_(iteration), inProgramOrder_(inProgramOrder), ranges_(iteration) {}

  LogicalResult run() {
    bool computes = false;
    for (mlir::Operation &op : iteration_.block()) {
      if (failed(keepsItsOwnRules(op)))
        return failure();
      if (auto carry = llvm::dyn_cast<ir::CarryOp>(op)) {
        if (computes)
          return op.emitError() << "says what is there on entry, behind a step";
        if (failed(occupy(carry, carry.getResult(), carry.getSlot().getDefiningOp(),
                          static_cast<uint64_t>(carry.getSlotOffset()), carry.getRange().bytes)))
          return failure();
        entry_.insert(contentOf(carry.getResult(), carry.getDirty()));
        if (carry.getDirty())
          ahead_[ranges_.bufferOf(carry.getResult())] = Ahead::OnEntry;
        continue;
      }
      if (auto claim = llvm::dyn_cast<ir::ClaimOp>(op)) {
        if (failed(occupy(claim, claim.getResult(), claim.getSlot().getDefiningOp(),
                          static_cast<uint64_t>(claim.getSlotOffset()), ir::bufferType(claim.getResult()).getBytes())))
          return failure();
        continue;
      }
      computes |= llvm::isa<ir::StepInterface>(op);
      if (failed(checkUses(op)))
        return failure();
      if (auto prefetch = llvm::dyn_cast<ir::PrefetchOp>(op)) {
        if (isAhead(prefetch.getResult()))
          return op.emitError() << "brings " << nameOf(prefetch.getResult())
                                << ", whose home is behind what is on the device";
        underWay_.insert(prefetch.getResult());
        if (failed(occupy(prefetch, prefetch.getResult(), prefetch.slot(),
                          prefetch.offsetInSlot() + prefetch.getRange().offset, prefetch.getRange().bytes)))
          return failure();
      } else if (auto wait = llvm::dyn_cast<ir::WaitOp>(op)) {
        if (failed(checkWait(wait)))
          return failure();
      } else if (auto release = llvm::dyn_cast<ir::ReleaseOp>(op)) {
        if (failed(giveUp(release.getBuffer(), &op)))
          return failure();
      } else if (auto evict = llvm::dyn_cast<ir::EvictOp>(op)) {
        writeBack(evict);
        if (!evict.getKeeping() && failed(giveUp(evict.getBuffer(), &op)))
          return failure();
      } else if (auto carryOut = llvm::dyn_cast<ir::CarryOutOp>(op)) {
        if (failed(carryOver(carryOut)))
          return failure();
      } else if (auto step = llvm::dyn_cast<ir::StepInterface>(op)) {
        update(step);
      }
    }
    for (const auto &[range, gone] : brought_)
      if (!gone)
        return range.getDefiningOp()->emitError()
               << "brings " << nameOf(range) << " to the device, where it is neither released nor carried out";
    return checkEdges();
  }

private:
  static LogicalResult keepsItsOwnRules(mlir::Operation &op) {
    return llvm::TypeSwitch<mlir::Operation *, LogicalResult>(&op)
        .Case<ir::CarryOp, ir::ClaimOp, ir::PrefetchOp, ir::WaitOp, ir::ReleaseOp, ir::EvictOp, ir::CarryOutOp>(
            [](auto moves) { return moves.verify(); })
        .Default(success());
  }

  // How a buffer's home is behind what is on the device: this iteration has written that, or one before has.
  enum class Ahead : uint8_t { Written, OnEntry };
  bool isAhead(Value part) const { return ahead_.contains(ranges_.bufferOf(part)); }

  // What lies in a slot at an edge of the iteration: buffer, bytes, slot, offset, whether it is dirty.
  using Content = std::tuple<void *, uint64_t, void *, uint64_t, bool>;
  Content contentOf(Value part, bool dirty) const {
    mlir::Operation *first = ranges_.rangeOf(part).getDefiningOp();
    const auto carry = llvm::dyn_cast<ir::CarryOp>(first);
    const auto prefetch = llvm::dyn_cast<ir::PrefetchOp>(first);
    const Value slot = carry ? ir::CarryOp(carry).getSlot() : ir::PrefetchOp(prefetch).getDestination();
    const int64_t offset = carry ? ir::CarryOp(carry).getSlotOffset() : ir::PrefetchOp(prefetch).getSlotOffset();
    return {ranges_.bufferOf(part).getAsOpaquePointer(), ir::bufferType(part).getHeld(), slot.getAsOpaquePointer(),
            static_cast<uint64_t>(offset), dirty};
  }

  // `part` takes bytes of a slot; nothing else that is in use may lie there.
  LogicalResult occupy(mlir::Operation *op, Value part, mlir::Operation *slot, uint64_t offset, uint64_t bytes) {
    const Value range = ranges_.rangeOf(part);
    Value other;
    slots_[slot].forEach(offset, offset + bytes, [&](uint64_t, uint64_t, Value owner) {
      if (owner != range && (!brought_.lookup(owner) || kept_.contains(owner)))
        other = owner;
    });
    if (other) {
      auto diagnostic = op->emitError() << "overwrites " << nameOf(other) << ", which is still in use";
      diagnostic.attachNote(other.getLoc()) << "brought here";
      return diagnostic;
    }
    slots_[slot].assign(offset, offset + bytes, range);
    brought_.insert({range, nullptr});
    return success();
  }

  LogicalResult checkUses(mlir::Operation &op) {
    for (Value operand : op.getOperands()) {
      if (!llvm::isa<ir::BufferType>(operand.getType()))
        continue;
      const Value range = ranges_.rangeOf(operand);
      const auto it = brought_.find(range);
      if (it == brought_.end() || llvm::isa<ir::WaitOp>(op))
        continue;
      if (it->second) {
        auto diagnostic = op.emitError() << "uses " << nameOf(operand) << " after it was given up";
        diagnostic.attachNote(it->second->getLoc()) << "given up here";
        return diagnostic;
      }
      if (operand.getDefiningOp<ir::ClaimOp>() && !makes(op, operand))
        return op.emitError() << "uses " << nameOf(operand) << ", of which nothing is there: no step has written it";
      if (inProgramOrder_ && underWay_.contains(operand) && llvm::isa<ir::StepInterface>(op) &&
          !llvm::isa<ir::PrefetchOp>(op))
        return op.emitError() << "uses " << nameOf(operand) << " before its prefetch has been waited for";
    }
    return success();
  }

  // Whether the step writes what was claimed, and only that.
  static bool makes(mlir::Operation &op, Value claimed) {
    auto embed = llvm::dyn_cast<ir::EmbedOp>(op);
    return embed && embed.getInto() == claimed;
  }

  LogicalResult checkWait(ir::WaitOp wait) {
    if (!inProgramOrder_)
      return success();
    if (wait.getKind() != ir::WaitKind::Program && wait.getKind() != ir::WaitKind::Pacing)
      return wait.emitError() << "is between lanes, in phase movement";
    if (auto prefetch = wait.getEvent().getDefiningOp<ir::PrefetchOp>();
        prefetch && wait.getKind() == ir::WaitKind::Program)
      underWay_.erase(prefetch.getResult());
    return success();
  }

  // A compute step that writes what was brought, and not its home as well.
  void update(ir::StepInterface step) {
    llvm::SmallVector<ir::Access, 8> accesses;
    step.getAccesses(accesses);
    for (const ir::Access &access : accesses) {
      if (!access.value || access.kind == ir::AccessKind::Read || !brought_.contains(ranges_.rangeOf(access.value)))
        continue;
      const Value buffer = ranges_.bufferOf(access.value);
      if (llvm::none_of(accesses, [&](const ir::Access &other) {
            return other.arg == ir::Arg::KvHome && ranges_.rangeOf(other.value) == buffer;
          }))
        ahead_.insert({buffer, Ahead::Written}); // what is behind on entry stays so
    }
  }

  // `dirty` has only what this iteration has written.
  void writeBack(ir::EvictOp evict) {
    const auto it = ahead_.find(ranges_.bufferOf(evict.getBuffer()));
    if (it != ahead_.end() && (evict.getWriteBack() == ir::WriteBack::All || it->second == Ahead::Written))
      ahead_.erase(it);
  }

  LogicalResult carryOver(ir::CarryOutOp carryOut) {
    const Value range = ranges_.rangeOf(carryOut.getBuffer());
    if (isAhead(range) && !carryOut.getDirty())
      return carryOut.emitError() << "leaves " << nameOf(range) << " ahead of its home, and is not dirty";
    brought_[range] = carryOut;
    kept_.insert(range);
    exit_.insert(contentOf(carryOut.getBuffer(), carryOut.getDirty()));
    return success();
  }

  // A residual stream may end ahead of its home: what brings it from there afterwards is refused.
  LogicalResult giveUp(Value part, mlir::Operation *by) {
    if (isAhead(part) && !llvm::isa_and_nonnull<ir::ResidualOp>(ranges_.bufferOf(part).getDefiningOp()))
      return by->emitError() << "gives up " << nameOf(part) << ", which is ahead of its home";
    brought_[ranges_.rangeOf(part)] = by;
    return success();
  }

  // Steady state: the iteration after this one finds what it expects. In a cycle that is another one (VerifyCycles).
  LogicalResult checkEdges() {
    if (iteration_.getIterationClass() == ir::IterationClass::Transition || iteration_.getPeriod() > 1 ||
        entry_ == exit_)
      return success();
    for (const auto &[from, to, what] :
         {std::tuple(&entry_, &exit_, "finds on entry what it does not leave on exit: "),
          std::tuple(&exit_, &entry_, "leaves on exit what it does not expect on entry: ")})
      for (const Content &content : *from)
        if (!to->count(content))
          return iteration_.emitError() << what << std::get<1>(content) << " bytes of "
                                        << nameOf(Value::getFromOpaquePointer(std::get<0>(content)));
    return success();
  }

  ir::IterationOp iteration_;
  const bool inProgramOrder_;
  const ir::Ranges ranges_;
  llvm::MapVector<Value, mlir::Operation *> brought_; // range -> what gave it up
  llvm::DenseSet<Value> underWay_;                    // versions whose prefetch has not been waited for
  llvm::DenseSet<Value> kept_;                        // ranges that are carried out
  llvm::DenseMap<mlir::Operation *, algorithms::RangeMap<Value>> slots_; // by slot: who lies where
  llvm::DenseMap<Value, Ahead> ahead_; // by buffer: of which more is on the device than at home
  std::set<Content> entry_, exit_;
};

} // namespace

LogicalResult verifyMovement(ir::IterationOp iteration, bool inProgramOrder) {
  return MovementRules(iteration, inProgramOrder).run();
}

} // namespace headrace::passes
