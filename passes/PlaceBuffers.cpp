// SPDX-License-Identifier: Apache-2.0
//
// lanes -> offsets, for all iterations of a placement at once. Decides nothing itself: collects sizes and lives, asks
// algorithms::layOutArena, and writes the addresses down.
//
// Lives are counted in compute steps: transients are made and read by these. What a slot holds is there from the first
// step during which its copy may run, as the order of lanes and waits says, to the last that reads it.
#include <algorithm>
#include <array>

#include "passes/Passes.h"
#include "passes/PhaseRules.h"
#include "passes/algorithms/LayOutArena.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/MathExtras.h"

namespace headrace::passes {
#define GEN_PASS_DEF_PLACEBUFFERS
#include "passes/Passes.h.inc"

namespace {

constexpr uint64_t kAlign = 256;
uint64_t alignUp(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// What persists in an iteration, by region of the arena, in the order of declaration.
struct Persistent {
  llvm::SmallVector<ir::PersistentInterface> io, act, kv, slots, resident, host;

  explicit Persistent(ir::IterationOp iteration) {
    for (mlir::Operation &op : iteration.block()) {
      auto persistent = llvm::dyn_cast<ir::PersistentInterface>(op);
      if (!persistent)
        continue;
      if (llvm::isa<ir::SlotOp>(op))
        slots.push_back(persistent);
      else if (!ir::bufferType(op.getResult(0)).isOnDevice())
        host.push_back(persistent);
      else
        (llvm::isa<ir::IoOp>(op)    ? io
         : llvm::isa<ir::ActOp>(op) ? act
         : llvm::isa<ir::KvOp>(op)  ? kv
                                    : resident)
            .push_back(persistent);
    }
  }
  static constexpr size_t kSlotsRegion = 3; // of regions()
  // Activation blocks come before KV: in each placement they are where they are in the others, which may have fewer KV
  // blocks on the device.
  std::array<llvm::ArrayRef<ir::PersistentInterface>, 6> regions() const {
    return {io, act, kv, slots, resident, host};
  }
};

// The transients of an iteration and what its slots hold, with their lives, and where each transient's address goes.
class Lives {
public:
  algorithms::ArenaIteration arena;
  std::vector<ir::Address *> addresses; // by transient

  Lives(ir::IterationOp iteration, const StepOrder &order) : order_(order), ranges_(iteration) {
    for (mlir::Operation &op : iteration.block()) {
      if (auto slot = llvm::dyn_cast<ir::SlotOp>(op)) {
        slots_.try_emplace(&op, slots_.size());
      } else if (auto carry = llvm::dyn_cast<ir::CarryOp>(op)) {
        hold(carry.getResult(), carry.getSlot().getDefiningOp(), static_cast<uint64_t>(carry.getSlotOffset()), 0);
      } else if (auto claim = llvm::dyn_cast<ir::ClaimOp>(op)) { // for the next compute step
        hold(claim.getResult(), claim.getSlot().getDefiningOp(), static_cast<uint64_t>(claim.getSlotOffset()), now_);
      } else if (auto prefetch = llvm::dyn_cast<ir::PrefetchOp>(op)) {
        hold(prefetch.getResult(), prefetch.slot(), prefetch.offsetInSlot(), firstStepOf(prefetch));
      } else if (auto carryOut = llvm::dyn_cast<ir::CarryOutOp>(op)) {
        use(carryOut.getBuffer(), algorithms::kToTheEnd);
      } else if (auto evict = llvm::dyn_cast<ir::EvictOp>(op)) {
        use(evict.getBuffer(), algorithms::kToTheEnd); // read by another lane: free when the iteration has ended
      } else if (auto step = llvm::dyn_cast<ir::StepInterface>(op)) {
        compute(step);
      }
    }
    for (const Held &h : held_)
      arena.slotUses.push_back({h.slot, h.offset, alignUp(h.end - h.offset), h.first, h.last});
  }

private:
  struct Held {
    uint32_t slot;
    uint64_t offset, end; // in the slot
    int64_t first, last;
  };

  // The first compute step that may run while a copy does: the one behind the last that has ended when it starts.
  int64_t firstStepOf(ir::PrefetchOp prefetch) const {
    const int32_t ended =
        order_.clock(static_cast<size_t>(order_.indexOf(prefetch)))[static_cast<size_t>(ir::Lane::Compute)];
    return ended < 0 ? 0 : number_[static_cast<size_t>(ended)] + 1;
  }

  void hold(mlir::Value value, mlir::Operation *slot, uint64_t offset, int64_t first) {
    const uint64_t end = offset + ir::bufferType(value).getHeld();
    const auto [it, fresh] = heldBy_.try_emplace(ranges_.rangeOf(value), held_.size());
    if (fresh)
      held_.push_back({slots_.lookup(slot), offset, end, first, first});
    else
      held_[it->second].end = std::max(held_[it->second].end, end); // a part that grows
  }

  void use(mlir::Value value, int64_t step) {
    const mlir::Value range = ranges_.rangeOf(value);
    if (const auto it = transients_.find(range); it != transients_.end())
      arena.transients[it->second].last = std::max(arena.transients[it->second].last, step);
    else if (const auto held = heldBy_.find(range); held != heldBy_.end())
      held_[held->second].last = std::max(held_[held->second].last, step);
  }

  void compute(ir::StepInterface step) {
    for (mlir::Value operand : step->getOperands())
      use(operand, now_);
    if (ir::Address *address = step.resultAddress()) {
      transients_[step->getResult(0)] = addresses.size();
      add(ir::bufferType(step->getResult(0)).getBytes(), address);
    }
    if (ir::Workspace *workspace = step.workspace(); workspace && workspace->bytes)
      add(workspace->bytes, &workspace->address);
    number_.resize(static_cast<size_t>(order_.indexOf(step)) + 1);
    number_.back() = now_++;
  }
  void add(uint64_t bytes, ir::Address *address) {
    arena.transients.push_back({alignUp(bytes), now_, now_});
    addresses.push_back(address);
  }

  const StepOrder &order_;
  const ir::Ranges ranges_;
  int64_t now_ = 0;             // compute steps so far
  std::vector<int64_t> number_; // compute steps by StepOrder's index
  llvm::DenseMap<mlir::Operation *, uint32_t> slots_;
  llvm::DenseMap<mlir::Value, size_t> transients_, heldBy_; // by range: index into arena.transients, into held_
  std::vector<Held> held_;
};

// The iterations of a placement agree on what persists; one that brings no tails of caches lacks their slots, the last.
mlir::LogicalResult checkSame(ir::IterationOp first, const Persistent &a, ir::IterationOp other, const Persistent &b) {
  constexpr std::array names = {"io buffers",
                                "activation blocks",
                                "KV caches",
                                "slots",
                                "weights at home on the device",
                                "buffers at home elsewhere"};
  static_assert(names.size() == std::tuple_size_v<decltype(a.regions())>);
  const bool fewerSlots = a.slots.size() != b.slots.size() && other.getKvBlocks() != first.getKvBlocks();
  const size_t slots = std::min(a.slots.size(), b.slots.size());
  for (size_t region = 0; region < a.regions().size(); ++region) {
    llvm::ArrayRef<ir::PersistentInterface> of = a.regions()[region], with = b.regions()[region];
    if (region == Persistent::kSlotsRegion && fewerSlots) {
      of = of.take_front(slots);
      with = with.take_front(slots);
    }
    if (!std::equal(of.begin(), of.end(), with.begin(), with.end(),
                    [](ir::PersistentInterface x, ir::PersistentInterface y) {
                      return x.sizeInBytes() == y.sizeInBytes() && x.identity() == y.identity();
                    })) {
      auto diagnostic = other.emitError() << "has other " << names[region] << " than '" << first.getSymName()
                                          << "': the iterations of a module are those of one placement";
      diagnostic.attachNote(first.getLoc()) << "which is this one";
      return diagnostic;
    }
  }
  return mlir::success();
}

struct PlaceBuffers : impl::PlaceBuffersBase<PlaceBuffers> {
  using PlaceBuffersBase::PlaceBuffersBase;

  void runOnOperation() override {
    llvm::SmallVector<ir::IterationOp> iterations(getOperation().getOps<ir::IterationOp>());
    if (iterations.empty())
      return;
    std::vector<Persistent> persistent;
    for (ir::IterationOp iteration : iterations) {
      if (iteration.getPhase() != ir::Phase::Lanes) {
        iteration.emitError() << "buffers are placed in the lanes phase, not in phase "
                              << stringifyPhase(iteration.getPhase());
        return signalPassFailure();
      }
      persistent.emplace_back(iteration);
      for (ir::PersistentInterface p : persistent.back().host)
        if (!p.address().placed()) {
          p->emitError() << "has no address in the host slab: place-on-host comes first";
          return signalPassFailure();
        }
      if (failed(checkSame(iterations[0], persistent[0], iteration, persistent.back())))
        return signalPassFailure();
    }
    if (failed(place(iterations, persistent)))
      signalPassFailure();
  }

  mlir::LogicalResult place(llvm::ArrayRef<ir::IterationOp> iterations, std::vector<Persistent> &persistent) {
    const Persistent &first = *std::max_element(persistent.begin(), persistent.end(), [](const auto &a, const auto &b) {
      return a.slots.size() < b.slots.size();
    });
    // No sum of sizes overflows: everything declared stays below 2^62 bytes in all.
    uint64_t total = 0;
    const auto count = [&](uint64_t bytes) {
      total = bytes > kLargest - std::min(total, kLargest) ? kLargest + 1 : total + alignUp(bytes);
    };
    for (llvm::ArrayRef<ir::PersistentInterface> region : first.regions())
      for (ir::PersistentInterface p : region)
        count(p.sizeInBytes());

    std::vector<Lives> lives;
    std::vector<algorithms::ArenaIteration> arenas;
    for (ir::IterationOp iteration : iterations) {
      const mlir::FailureOr<StepOrder> order = StepOrder::derive(iteration);
      if (failed(order))
        return mlir::failure();
      lives.emplace_back(iteration, *order);
      arenas.push_back(lives.back().arena);
      for (const algorithms::LiveRange &life : arenas.back().transients)
        count(life.bytes);
    }
    if (total > kLargest)
      return ir::IterationOp(iterations[0]).emitError() << "has more bytes than can be addressed";

    std::vector<uint64_t> below, slotBytes, residentBytes;
    for (ir::PersistentInterface p : first.io)
      below.push_back(alignUp(p.sizeInBytes()));
    for (ir::PersistentInterface p : first.act)
      below.push_back(alignUp(p.sizeInBytes()));
    for (ir::PersistentInterface p : first.kv)
      below.push_back(alignUp(p.sizeInBytes()));
    for (ir::PersistentInterface p : first.slots)
      slotBytes.push_back(alignUp(p.sizeInBytes()));
    for (ir::PersistentInterface p : first.resident)
      residentBytes.push_back(alignUp(p.sizeInBytes()));
    const algorithms::ArenaLayout layout = algorithms::layOutArena(below, arenas, slotBytes, residentBytes);

    for (size_t i = 0; i < iterations.size(); ++i) {
      const auto write = [](llvm::ArrayRef<ir::PersistentInterface> region, const uint64_t *addresses) {
        for (size_t k = 0; k < region.size(); ++k)
          ir::PersistentInterface(region[k]).address().value = static_cast<int64_t>(addresses[k]);
      };
      const Persistent &p = persistent[i];
      write(p.io, layout.below.data());
      write(p.act, layout.below.data() + p.io.size());
      write(p.kv, layout.below.data() + p.io.size() + p.act.size());
      write(p.slots, layout.slots.data());
      write(p.resident, layout.persistent.data());
      for (size_t t = 0; t < lives[i].addresses.size(); ++t)
        lives[i].addresses[t]->value = static_cast<int64_t>(layout.transients[i][t]);
      ir::IterationOp iteration = iterations[i];
      iteration.setArenaBytes(static_cast<int64_t>(layout.top));
      iteration.setPhase(ir::Phase::Offsets);
    }
    return mlir::success();
  }

  static constexpr uint64_t kLargest = uint64_t{1} << 62;
};

} // namespace
} // namespace headrace::passes
