// SPDX-License-Identifier: Apache-2.0
//
// Plays the steps in program order over a map of who owns which bytes. What a step reads must be its buffer's; what it
// overwrites must be done with: all steps that touched it have ended, by the order of lanes and waits, when this one
// starts.
//
// Before the offsets phase bytes are those of slots (each slot an address space of its own); from then on those of the
// arena.
#include "passes/PhaseRules.h"
#include "passes/algorithms/RangeMap.h"
#include "llvm/ADT/DenseSet.h"

namespace headrace::passes {
namespace {

using mlir::failure;
using mlir::LogicalResult;
using mlir::success;
using mlir::Value;
using Clock = StepOrder::Clock;
// Who owns bytes: the value that made a range (ir::Ranges), or the step whose scratch it is. Never dereferenced.
using Owner = const void *;

constexpr uint64_t kAlign = 256;

class AccessRules {
public:
  AccessRules(ir::IterationOp iteration, const StepOrder &order, bool placed)
      : iteration_(iteration), order_(order), placed_(placed), ranges_(iteration) {}

  LogicalResult run() {
    for (mlir::Operation &op : iteration_.block()) {
      if (auto persistent = llvm::dyn_cast<ir::PersistentInterface>(op)) {
        if (placed_ && failed(declare(persistent)))
          return failure();
      } else if (auto carry = llvm::dyn_cast<ir::CarryOp>(op)) {
        own(carry.getResult(), 0, carry.getRange().bytes);
      } else if (auto step = llvm::dyn_cast<ir::StepInterface>(op)) {
        if (failed(play(step)))
          return failure();
      } else if (auto carryOut = llvm::dyn_cast<ir::CarryOutOp>(op)) {
        if (failed(find(&op, carryOut.getBuffer(), 0, ir::bufferType(carryOut.getBuffer()).getHeld())))
          return failure();
      }
    }
    return success();
  }

private:
  Owner ownerOf(Value value) const { return ranges_.rangeOf(value).getAsOpaquePointer(); }

  // Where bytes of `value` lie: a map of owners, and the first byte in it. No map for what has no place yet.
  algorithms::RangeMap<Owner> *placeOf(Value value, uint64_t &at) {
    if (placed_) {
      at = static_cast<uint64_t>(ranges_.addressOf(value).value);
      return ir::bufferType(value).isOnDevice() ? &arena_ : nullptr;
    }
    mlir::Operation *first = ranges_.rangeOf(value).getDefiningOp();
    if (auto carry = llvm::dyn_cast_or_null<ir::CarryOp>(first)) {
      at = static_cast<uint64_t>(carry.getSlotOffset());
      return &slots_[carry.getSlot().getDefiningOp()];
    }
    if (auto claim = llvm::dyn_cast_or_null<ir::ClaimOp>(first)) {
      at = static_cast<uint64_t>(claim.getSlotOffset());
      return &slots_[claim.getSlot().getDefiningOp()];
    }
    if (auto prefetch = llvm::dyn_cast_or_null<ir::PrefetchOp>(first)) {
      at = static_cast<uint64_t>(prefetch.getSlotOffset());
      return &slots_[prefetch.getDestination().getDefiningOp()];
    }
    return nullptr;
  }

  void own(Value value, uint64_t offset, uint64_t bytes) {
    uint64_t at = 0;
    if (algorithms::RangeMap<Owner> *place = placeOf(value, at))
      place->assign(at + offset, at + offset + bytes, ownerOf(value));
  }

  // `bytes` at `address`; a tail at home begins where the blocks before it end.
  LogicalResult checkAddress(mlir::Operation *op, ir::Address address, uint64_t bytes, bool onDevice) {
    if (!address.placed())
      return op->emitError() << "has no address, in phase offsets";
    const auto at = static_cast<uint64_t>(address.value);
    auto cache = llvm::dyn_cast<ir::KvOp>(op);
    if (at % kAlign && !(cache && (!onDevice || cache.isInterleaved())))
      return op->emitError() << "lies at " << at << ", which is no multiple of " << kAlign;
    const auto arena = static_cast<uint64_t>(iteration_.getArenaBytes());
    if (onDevice && (bytes > arena || at > arena - bytes))
      return op->emitError() << "lies at [" << at << " for " << bytes << "], beyond the arena of " << arena << " bytes";
    return success();
  }

  // What is at home on the device owns its bytes throughout.
  LogicalResult declare(ir::PersistentInterface op) {
    const bool slot = llvm::isa<ir::SlotOp>(op.getOperation());
    const bool onDevice = slot || ir::bufferType(op->getResult(0)).isOnDevice();
    const uint64_t bytes = op.sizeInBytes();
    if (failed(checkAddress(op, op.address(), bytes, onDevice)))
      return failure();
    if (auto cache = llvm::dyn_cast<ir::KvOp>(op.getOperation()); cache && cache.isInterleaved())
      return declareInterleaved(cache);
    return declareAt(op, static_cast<uint64_t>(op.address().value), bytes, onDevice, slot);
  }

  // Of caches that are interleaved the first stands lowest, and has the range of all of them.
  LogicalResult declareInterleaved(ir::KvOp cache) {
    const auto at = static_cast<uint64_t>(cache.address().value);
    const auto blockBytes = static_cast<uint64_t>(cache.getBlockBytes()),
               stride = static_cast<uint64_t>(cache.getStride());
    if (!interleaved_) {
      interleaved_ = cache;
      const uint64_t bytes = cache.sizeInBytes() / blockBytes * stride;
      const auto arena = static_cast<uint64_t>(iteration_.getArenaBytes());
      if (bytes > arena || at > arena - bytes)
        return cache.emitError() << "lies at [" << at << " for " << bytes
                                 << "], interleaved with others, beyond the arena of " << arena << " bytes";
      numbers_.insert(0);
      return declareAt(cache, at, bytes, /*onDevice=*/true, /*slot=*/false);
    }
    const auto base = static_cast<uint64_t>(interleaved_.address().value);
    const auto refused = [&](const llvm::Twine &what) {
      auto diagnostic = cache.emitError() << what;
      diagnostic.attachNote(interleaved_.getLoc()) << "which is this one";
      return diagnostic;
    };
    if (cache.getBlockBytes() != interleaved_.getBlockBytes() || cache.getStride() != interleaved_.getStride() ||
        cache.sizeInBytes() != interleaved_.sizeInBytes())
      return refused("is interleaved in another way than the first cache");
    if (at < base || (at - base) % blockBytes != 0 || at - base >= stride)
      return refused("is interleaved, but does not begin at a block of the first cache's stride");
    if (!numbers_.insert((at - base) / blockBytes).second)
      return refused("is interleaved, and lies where another cache is");
    atHome_.insert(ownerOf(cache.getBuffer()));
    return success();
  }

  LogicalResult declareAt(ir::PersistentInterface op, uint64_t at, uint64_t bytes, bool onDevice, bool slot) {
    algorithms::RangeMap<Value> &space = onDevice ? homes_ : host_;
    Value other;
    space.forEach(at, at + bytes, [&](uint64_t, uint64_t, Value owner) { other = owner; });
    if (other) {
      auto diagnostic = op->emitError() << "lies at [" << at << " for " << bytes << "], where another buffer is";
      diagnostic.attachNote(other.getLoc()) << "which is this one";
      return diagnostic;
    }
    space.assign(at, at + bytes, op->getResult(0));
    if (onDevice && !slot) {
      atHome_.insert(ownerOf(op->getResult(0)));
      arena_.assign(at, at + bytes, ownerOf(op->getResult(0)));
    }
    return success();
  }

  LogicalResult find(mlir::Operation *op, Value value, uint64_t offset, uint64_t bytes) {
    uint64_t at = 0;
    const Owner range = ownerOf(value);
    if (atHome_.contains(range))
      return success(); // nothing may write there, which is checked where something does
    algorithms::RangeMap<Owner> *place = placeOf(value, at);
    if (!place)
      return success();
    uint64_t found = 0;
    place->forEach(at + offset, at + offset + bytes, [&](uint64_t begin, uint64_t end, Owner owner) {
      if (owner == range)
        found += end - begin;
    });
    if (found != bytes)
      return op->emitError() << "needs " << bytes << " bytes of a buffer of which only " << found
                             << " are where they should be";
    return success();
  }

  static bool ended(const Clock &uses, const Clock &when) {
    for (size_t lane = 0; lane < StepOrder::kLanes; ++lane)
      if (uses[lane] > when[lane])
        return false;
    return true;
  }

  // Everything that touched the range (its writers and readers so far) has ended when `step` starts.
  LogicalResult checkDone(ir::StepInterface step, const Clock &when, Owner owner) {
    const auto it = uses_.find(owner);
    if (it == uses_.end() || ended(it->second.last, when))
      return success();
    auto diagnostic =
        step->emitError() << "overwrites bytes that an earlier step may still be using: no wait orders them";
    diagnostic.attachNote(it->second.where) << "first used here";
    return diagnostic;
  }

  LogicalResult overwrite(ir::StepInterface step, const Clock &when, algorithms::RangeMap<Owner> &place, uint64_t at,
                          uint64_t bytes, Owner self) {
    llvm::SmallVector<Owner, 4> owners;
    place.forEach(at, at + bytes, [&](uint64_t, uint64_t, Owner owner) {
      if (owner != self && !llvm::is_contained(owners, owner))
        owners.push_back(owner);
    });
    for (Owner owner : owners) {
      if (atHome_.contains(owner))
        return step->emitError() << "writes over a buffer that is at home there";
      if (failed(checkDone(step, when, owner)))
        return failure();
    }
    place.assign(at, at + bytes, self);
    return success();
  }

  void touch(Owner owner, mlir::Location where, size_t step) {
    const auto [it, fresh] = uses_.try_emplace(owner, Uses{{}, where});
    if (fresh)
      it->second.last.fill(-1);
    it->second.last[order_.lane(step)] = static_cast<int32_t>(step);
  }

  LogicalResult play(ir::StepInterface step) {
    const auto index = static_cast<size_t>(order_.indexOf(step));
    const Clock &when = order_.clock(index);
    accesses_.clear();
    step.getAccesses(accesses_);
    for (const ir::Access &access : accesses_)
      if (access.value && access.kind != ir::AccessKind::Write && failed(read(step, when, access)))
        return failure();
    for (const ir::Access &access : accesses_)
      if (access.kind != ir::AccessKind::Read && failed(write(step, when, access)))
        return failure();
    if (placed_ && failed(checkApart(step)))
      return failure();
    for (const ir::Access &access : accesses_)
      touch(access.value ? ownerOf(access.value) : step.getOperation(), step.getLoc(), index);
    return success();
  }

  // A step's new buffer and its scratch lie apart from all else that it uses.
  LogicalResult checkApart(ir::StepInterface step) {
    const auto begin = [&](const ir::Access &access) {
      return access.value ? static_cast<uint64_t>(ranges_.addressOf(access.value).value) + access.range.offset
                          : static_cast<uint64_t>(step.workspace()->address.value);
    };
    const auto isOnDevice = [](const ir::Access &access) {
      return !access.value || ir::bufferType(access.value).isOnDevice();
    };
    for (size_t i = 0; i < accesses_.size(); ++i) {
      const ir::Access &a = accesses_[i];
      for (size_t j = 0; j < accesses_.size() && a.kind == ir::AccessKind::Write && isOnDevice(a); ++j) {
        const ir::Access &b = accesses_[j];
        if (i != j && isOnDevice(b) && begin(a) < begin(b) + b.range.bytes && begin(b) < begin(a) + a.range.bytes)
          return step->emitError() << "writes over bytes that it uses itself";
      }
    }
    return success();
  }

  LogicalResult read(ir::StepInterface step, const Clock &when, const ir::Access &access) {
    if (mlir::Operation *writer = ir::stepOf(access.value)) {
      const auto written = static_cast<size_t>(order_.indexOf(writer));
      if (when[order_.lane(written)] < static_cast<int32_t>(written)) {
        auto diagnostic = step->emitError() << "reads what another lane may still be writing: no wait orders them";
        diagnostic.attachNote(writer->getLoc()) << "written here";
        return diagnostic;
      }
    }
    return find(step, access.value, access.range.offset, access.range.bytes);
  }

  LogicalResult write(ir::StepInterface step, const Clock &when, const ir::Access &access) {
    if (!access.value) { // scratch
      const ir::Workspace &scratch = *step.workspace();
      if (!placed_)
        return success();
      if (failed(checkAddress(step, scratch.address, scratch.bytes, true)))
        return failure();
      const auto at = static_cast<uint64_t>(scratch.address.value);
      return overwrite(step, when, arena_, at, scratch.bytes, step.getOperation());
    }
    const Value range = ranges_.rangeOf(access.value);
    // In place, as a home on the host is: after all that used the version before.
    if (access.kind == ir::AccessKind::ReadWrite || !ir::bufferType(access.value).isOnDevice())
      return checkDone(step, when, ownerOf(range));
    if (placed_ && range.getDefiningOp() == step.getOperation() && step.resultAddress() &&
        failed(checkAddress(step, *step.resultAddress(), access.range.bytes, true)))
      return failure();
    uint64_t at = 0;
    if (algorithms::RangeMap<Owner> *place = placeOf(access.value, at))
      return overwrite(step, when, *place, at + access.range.offset, access.range.bytes, ownerOf(range));
    return success();
  }

  ir::IterationOp iteration_;
  const StepOrder &order_;
  const bool placed_;
  const ir::Ranges ranges_;
  struct Uses {
    Clock last;           // by lane: the last step that touched it
    mlir::Location where; // the first one
  };
  ir::KvOp interleaved_;                                                 // the first of caches that are
  llvm::DenseSet<uint64_t> numbers_;                                     // which blocks of a stride they have
  algorithms::RangeMap<Value> homes_, host_;                             // what persists, slots included
  llvm::DenseSet<Owner> atHome_;                                         // the same, without slots
  algorithms::RangeMap<Owner> arena_;                                    // who owns which bytes now
  llvm::DenseMap<mlir::Operation *, algorithms::RangeMap<Owner>> slots_; // the same by slot, before there are addresses
  llvm::DenseMap<Owner, Uses> uses_;
  llvm::SmallVector<ir::Access> accesses_;
};

} // namespace

LogicalResult verifyAccesses(ir::IterationOp iteration, const StepOrder &order, bool placed) {
  return AccessRules(iteration, order, placed).run();
}

} // namespace headrace::passes
