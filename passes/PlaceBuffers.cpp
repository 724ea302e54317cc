// SPDX-License-Identifier: Apache-2.0
//
// lanes -> offsets, for all iterations of a placement at once. Decides nothing itself: collects sizes, asks
// algorithms::livesOf and layOutArena, and writes the addresses down.
#include <algorithm>
#include <array>

#include "passes/Passes.h"
#include "passes/PhaseRules.h"
#include "passes/ProgramOf.h"
#include "passes/algorithms/LayOutArena.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

namespace headrace::passes {
#define GEN_PASS_DEF_PLACEBUFFERS
#include "passes/Passes.h.inc"

namespace {

constexpr uint64_t kAlign = 256;
uint64_t alignUp(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// What persists in an iteration, by region of the arena, in the order of declaration.
struct Persistent {
  llvm::SmallVector<ir::PersistentInterface> io, act, kv, slots, resident, host, staging;

  explicit Persistent(ir::IterationOp iteration) {
    for (mlir::Operation &op : iteration.block()) {
      auto persistent = llvm::dyn_cast<ir::PersistentInterface>(op);
      if (!persistent)
        continue;
      if (llvm::isa<ir::StagingOp>(op)) // of iterations that attend on the CPU
        staging.push_back(persistent);
      else if (llvm::isa<ir::SlotOp>(op))
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

// Where the addresses of an iteration's transients are kept, in the order of algorithms::livesOf.
std::vector<ir::Address *> transientsOf(ir::IterationOp iteration) {
  std::vector<ir::Address *> addresses;
  for (mlir::Operation &op : iteration.block())
    if (auto step = llvm::dyn_cast<ir::StepInterface>(op)) {
      if (ir::Address *address = step.resultAddress())
        addresses.push_back(address);
      if (ir::Workspace *workspace = step.workspace(); workspace && workspace->bytes)
        addresses.push_back(&workspace->address);
    }
  return addresses;
}

// The iterations of a placement agree on what persists; one that brings no tails of caches, as the CPU attends or none
// may be in use, lacks their slots, the last.
mlir::LogicalResult checkSame(ir::IterationOp first, const Persistent &a, ir::IterationOp other, const Persistent &b) {
  constexpr std::array names = {"io buffers",
                                "activation blocks",
                                "KV caches",
                                "slots",
                                "weights at home on the device",
                                "buffers at home elsewhere"};
  static_assert(names.size() == std::tuple_size_v<decltype(a.regions())>);
  const bool fewerSlots = a.slots.size() != b.slots.size() &&
                          (other.getKvBlocks() != first.getKvBlocks() || a.staging.empty() != b.staging.empty());
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
      for (llvm::ArrayRef<ir::PersistentInterface> of : {persistent.back().host, persistent.back().staging})
        for (ir::PersistentInterface p : of)
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

    std::vector<algorithms::ArenaIteration> arenas;
    for (ir::IterationOp iteration : iterations) {
      const mlir::FailureOr<StepOrder> order = StepOrder::derive(iteration);
      if (failed(order))
        return mlir::failure();
      const mlir::FailureOr<ProgramOf> program = programOf(iteration);
      if (failed(program))
        return mlir::failure();
      arenas.push_back(algorithms::livesOf(*program, order->clocks()));
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
    // Caches one behind the other; or all of them in one range, block by block.
    const auto cacheOf = [](ir::PersistentInterface cache) { return llvm::cast<ir::KvOp>(cache.getOperation()); };
    const bool interleaved = !first.kv.empty() && cacheOf(first.kv.front()).isInterleaved();
    if (interleaved)
      below.push_back(alignUp(first.kv.size() * cacheOf(first.kv.front()).sizeInBytes()));
    else
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
      const uint64_t *caches = layout.below.data() + p.io.size() + p.act.size();
      if (interleaved)
        for (size_t k = 0; k < p.kv.size(); ++k) {
          ir::KvOp cache = cacheOf(p.kv[k]);
          cache.address().value = static_cast<int64_t>(*caches) + static_cast<int64_t>(k) * cache.getBlockBytes();
        }
      else
        write(p.kv, caches);
      write(p.slots, layout.slots.data());
      write(p.resident, layout.persistent.data());
      ir::IterationOp iteration = iterations[i];
      for (const auto &[transient, address] : llvm::zip_equal(transientsOf(iteration), layout.transients[i]))
        transient->value = static_cast<int64_t>(address);
      iteration.setArenaBytes(static_cast<int64_t>(layout.top));
      iteration.setPhase(ir::Phase::Offsets);
    }
    return mlir::success();
  }

  static constexpr uint64_t kLargest = uint64_t{1} << 62;
};

} // namespace
} // namespace headrace::passes
