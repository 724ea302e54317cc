// SPDX-License-Identifier: Apache-2.0
//
// homes -> movement. Movables finds what is moved, a planner of passes/algorithms/PlanMovement.h says which copies
// there are, where they stand and what waits for them; here they are written down.
#include <algorithm>
#include <optional>

#include "passes/BehindSteps.h"
#include "passes/Movables.h"
#include "passes/Passes.h"
#include "passes/algorithms/CycleOf.h"
#include "passes/algorithms/PlanMovement.h"

namespace headrace::passes {
#define GEN_PASS_DEF_INSERTMOVEMENT
#include "passes/Passes.h.inc"

namespace {

using algorithms::Movement;
using ir::ByteRange;
using mlir::Value;

class Writer {
public:
  Writer(ir::IterationOp iteration, const Movables &movables, const algorithms::MovementPlan &plan)
      : iteration_(iteration), movables_(movables), plan_(plan) {}

  void run() {
    if (movables_.moved.empty())
      return;
    declareSlots();
    held_.resize(plan_.holdings);
    here_.resize(movables_.moved.size());
    tokens_.resize(movables_.moved.size());
    for (const Movement &movement : plan_.movements)
      write(movement);
    for (ir::PublishOp publish : iteration_.block().getOps<ir::PublishOp>()) // what it sends, as it has come home
      for (mlir::OpOperand &stream : publish.getStreamsMutable())
        stream.set(lastVersion(stream.get()));
    llvm::SmallVector<Value> out; // as they are before what brought them is taken out
    for (const algorithms::CarriedOut &carried : plan_.out)
      out.push_back(carried.used ? lastOnDevice(carried.moved) : held_[carried.holding]);
    for (size_t i = 0; i < movables_.moved.size(); ++i)
      await(i);
    mlir::OpBuilder builder = mlir::OpBuilder::atBlockEnd(&iteration_.block());
    for (const auto &[carried, value] : llvm::zip_equal(plan_.out, out))
      ir::CarryOutOp::create(builder, iteration_.getLoc(), value, carried.dirty);
    for (ir::OnDeviceOp use : movables_.uses)
      use.erase();
  }

private:
  const algorithms::Moved &moved(size_t i) const { return movables_.moved[i]; }
  ir::OnDeviceOp use(size_t i) const { return movables_.uses[i]; }
  // Where it is at home; a cache's tail for the next iteration with the rows that this one appends.
  Value source(size_t i) const { return use(i).getSource(); }
  mlir::Location loc(size_t i) const { return use(i).getLoc(); }

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
    behind_.emplace(slots_.back().getDefiningOp(), movables_.ops);
  }

  ir::BufferType heldType(size_t i, uint64_t held) const {
    const ir::BufferType home = ir::bufferType(source(i));
    return ir::BufferType::get(home.getContext(), ir::MemorySpace::Device, home.getBytes(), held, home.getEncoding());
  }

  // Of a copy.
  ir::StepInfo infoOf(size_t i, uint64_t bytes) const {
    ir::StepInfo info;
    info.part = ir::Part::Movement;
    info.layer = movables_.items[moved(i).item].layer;
    info.miniBatch = static_cast<uint8_t>(moved(i).miniBatch);
    info.linkBytes = info.deviceBytes = bytes;
    info.resizable = moved(i).resizable();
    return info;
  }

  // What the last step that uses a movable finds: here, or as a step has updated it.
  Value lastOnDevice(size_t i) const {
    const Value brought = use(i).getResult(), last = lastVersion(brought);
    return last == brought ? here_[i] : last;
  }

  void write(const Movement &movement) {
    const size_t i = movement.moved;
    const auto offset = static_cast<int64_t>(movement.offset);
    switch (movement.kind) {
    case Movement::Kind::Carry:
      here_[i] = held_[movement.holding] =
          behind_->insert<ir::CarryOp>(movement.behind, loc(i), heldType(i, movement.bytes), source(i),
                                       slots_[movement.slot], ByteRange{0, movement.bytes}, offset, movement.dirty);
      return;
    case Movement::Kind::Claim:
      here_[i] = held_[movement.holding] = behind_->insert<ir::ClaimOp>(movement.behind, loc(i), use(i).getType(),
                                                                        source(i), slots_[movement.slot], offset);
      return;
    case Movement::Kind::Pace:
      behind_->insert<ir::WaitOp>(movement.behind, loc(i),
                                  movables_.ops[static_cast<size_t>(movement.after)]->getResult(0),
                                  ir::WaitKind::Pacing, ir::Lane::H2D);
      return;
    case Movement::Kind::Bring:
      bring(movement);
      return;
    case Movement::Kind::GiveUp:
      giveUp(movement);
      return;
    }
  }

  // Behind what is there already of it, where that is a part.
  void bring(const Movement &movement) {
    const size_t i = movement.moved;
    const bool part = movement.from > 0;
    const Value home = movement.homeAsWritten ? lastVersion(source(i)) : source(i);
    auto prefetch = behind_->insert<ir::PrefetchOp>(
        movement.behind, loc(i), heldType(i, movement.from + movement.bytes),
        ir::TokenType::get(iteration_.getContext()), home, part ? held_[movement.holding] : slots_[movement.slot],
        ByteRange{movement.from, movement.bytes}, part ? 0 : static_cast<int64_t>(movement.offset),
        infoOf(i, movement.bytes));
    held_[movement.holding] = prefetch.getResult();
    if (movement.forNext)
      return;
    here_[i] = prefetch.getResult();
    tokens_[i] = prefetch.getToken();
  }

  void giveUp(const Movement &movement) {
    const size_t i = movement.moved;
    const Value buffer = movement.used ? lastOnDevice(i) : held_[movement.holding];
    if (!movement.back) {
      behind_->insert<ir::ReleaseOp>(movement.behind, loc(i), buffer);
      return;
    }
    const Value home = lastVersion(source(i));
    behind_->insert<ir::EvictOp>(movement.behind, loc(i), home.getType(), ir::TokenType::get(iteration_.getContext()),
                                 buffer, home, ByteRange{0, movement.bytes},
                                 *movement.back == algorithms::WriteBack::Dirty ? ir::WriteBack::Dirty
                                                                                : ir::WriteBack::All,
                                 movement.keeping, infoOf(i, movement.bytes));
  }

  void await(size_t i) {
    use(i).getResult().replaceAllUsesWith(here_[i]);
    if (!tokens_[i])
      return;
    mlir::OpBuilder builder(movables_.ops[static_cast<size_t>(plan_.awaitedBefore[i])]);
    ir::WaitOp::create(builder, loc(i), tokens_[i], ir::WaitKind::Program, ir::Lane::Compute);
  }

  ir::IterationOp iteration_;
  const Movables &movables_;
  const algorithms::MovementPlan &plan_;
  std::vector<Value> slots_, held_;  // by slot; by holding
  std::vector<Value> here_, tokens_; // by movable: what its steps find, its copy's token
  std::optional<BehindSteps> behind_;
};

struct InsertMovement : impl::InsertMovementBase<InsertMovement> {
  using InsertMovementBase::InsertMovementBase;

  void runOnOperation() override {
    if (failed(insert(getOperation())))
      signalPassFailure();
  }

  mlir::LogicalResult insert(ir::IterationOp iteration) {
    if (iteration.getPhase() != ir::Phase::Homes)
      return iteration.emitError() << "movement is inserted in the homes phase, not in phase "
                                   << stringifyPhase(iteration.getPhase());
    const mlir::FailureOr<Movables> movables = findMovables(iteration, residency);
    if (failed(movables))
      return mlir::failure();
    const algorithms::Residency &of = residency;
    if (phase >= 0) {
      if (!of.cycles())
        return iteration.emitError() << "has no places that cycle: the residency names none (kv-places)";
      const auto tails = llvm::count_if(
          movables->items, [](const algorithms::MovedItem &i) { return i.kind == algorithms::MovableKind::Kv; });
      iteration.setCyclePhase(phase);
      iteration.setPeriod(static_cast<int64_t>(algorithms::cyclePeriodOf(of, tails)));
    }
    const ir::IterationClass iterationClass = iteration.getIterationClass();
    const algorithms::MovementPlan plan =
        algorithms::planIteration(*movables, of,
                                  {.cut = iterationClass == ir::IterationClass::Decode  ? of.wrap.decode
                                          : iterationClass == ir::IterationClass::Mixed ? of.wrap.mixed
                                                                                        : std::nullopt,
                                   .back = writeBackOf(of, iterationClass),
                                   .bringsTails = iteration.getKvBlocks() == 0,
                                   .phase = static_cast<uint64_t>(iteration.getCyclePhase()),
                                   .period = static_cast<uint64_t>(iteration.getPeriod())});
    if (!plan.error.empty())
      return iteration.emitError() << plan.error;
    Writer(iteration, *movables, plan).run();
    iteration.setPhase(ir::Phase::Movement);
    return mlir::success();
  }
};

} // namespace
} // namespace headrace::passes
