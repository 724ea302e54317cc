// SPDX-License-Identifier: Apache-2.0
#include "passes/ProgramOf.h"

#include "passes/Movables.h"
#include "llvm/ADT/DenseMap.h"

namespace headrace::passes {
namespace {

using algorithms::Program;
using Kind = Program::Kind;
using mlir::Value;

static_assert(algorithms::kLanes == ir::getMaxEnumValForLane() + 1 &&
              static_cast<int>(algorithms::Lane::H2D) == static_cast<int>(ir::Lane::H2D) &&
              static_cast<int>(algorithms::Lane::D2H) == static_cast<int>(ir::Lane::D2H) &&
              static_cast<int>(algorithms::Lane::Cpu) == static_cast<int>(ir::Lane::Cpu));

class Reader {
public:
  mlir::FailureOr<ProgramOf> run(ir::IterationOp iteration) {
    for (mlir::Operation &op : iteration.block())
      if (failed(read(op)))
        return mlir::failure();
    return std::move(program_);
  }

private:
  static bool readOnly(mlir::Operation &op) {
    if (auto movable = llvm::dyn_cast<ir::MovableInterface>(op))
      return traitsOf(movable.movable()).written == algorithms::Written::Never;
    auto io = llvm::dyn_cast<ir::IoOp>(op);
    return io && io.getRole() == ir::IoRole::Meta;
  }

  mlir::LogicalResult read(mlir::Operation &op) {
    if (auto persistent = llvm::dyn_cast<ir::PersistentInterface>(op)) {
      if (llvm::isa<ir::SlotOp>(op))
        slots_.try_emplace(&op, static_cast<uint32_t>(slots_.size()));
      else if (!readOnly(op))
        homes_.insert(op.getResult(0));
      return mlir::success();
    }
    if (auto carry = llvm::dyn_cast<ir::CarryOp>(op)) {
      begin(op, Kind::Carry);
      hold(carry.getResult(), carry.getSlot(), static_cast<uint64_t>(carry.getSlotOffset()), /*claimed=*/false);
      end();
    } else if (auto claim = llvm::dyn_cast<ir::ClaimOp>(op)) {
      begin(op, Kind::Claim);
      hold(claim.getResult(), claim.getSlot(), static_cast<uint64_t>(claim.getSlotOffset()), /*claimed=*/true);
      end();
    } else if (llvm::isa<ir::ReleaseOp, ir::CarryOutOp>(op)) {
      begin(op, llvm::isa<ir::ReleaseOp>(op) ? Kind::Release : Kind::CarryOut);
      use(op.getOperand(0));
      end();
    } else if (auto wait = llvm::dyn_cast<ir::WaitOp>(op)) {
      if (wait.getKind() != ir::WaitKind::Program && wait.getKind() != ir::WaitKind::Pacing)
        return mlir::success();
      const int32_t of = indexOf_.lookup(ir::stepOf(wait.getEvent()));
      begin(op, wait.getKind() == ir::WaitKind::Program ? Kind::Await : Kind::Pace).of = of;
      end();
    } else if (auto step = llvm::dyn_cast<ir::StepInterface>(op)) {
      return readStep(step);
    }
    return mlir::success();
  }

  mlir::LogicalResult readStep(ir::StepInterface step) {
    if (!step.stepInfo().lane)
      return step->emitError() << "has no lane; assign lanes before waits are inserted";
    auto prefetch = llvm::dyn_cast<ir::PrefetchOp>(step.getOperation());
    auto evict = llvm::dyn_cast<ir::EvictOp>(step.getOperation());
    begin(*step, prefetch ? Kind::Bring : evict ? Kind::Evict : Kind::Compute);
    for (Value operand : step->getOperands())
      use(operand);
    Program::Op &made = program_.ops.back();
    made.lane = static_cast<algorithms::Lane>(*step.stepInfo().lane);
    made.hasEvent = step->getNumResults() > 0;
    made.firstMade = static_cast<uint32_t>(program_.versions.size());
    if (prefetch) {
      made.from = prefetch.getRange().offset;
      made.bytes = prefetch.getRange().bytes;
    } else if (evict) {
      made.keeps = evict.getKeeping();
    } else if (const ir::Workspace *workspace = step.workspace()) {
      made.workspaceBytes = workspace->bytes;
    }
    for (unsigned i = 0, n = step->getNumResults(); i < n; ++i)
      if (llvm::isa<ir::BufferType>(step->getResult(i).getType()))
        make(step, i);
    end();
    return mlir::success();
  }

  // The buffer that a step's result is, or its next version.
  void make(ir::StepInterface step, unsigned result) {
    const Value value = step->getResult(result);
    if (const int tied = step.tiedOperand(result); tied >= 0) {
      const auto before = versionOf_.find(step->getOperand(static_cast<unsigned>(tied)));
      if (before == versionOf_.end())
        return; // of a buffer that orders nothing
      add(value, program_.versions[before->second].range, static_cast<int32_t>(before->second));
    } else if (auto prefetch = llvm::dyn_cast<ir::PrefetchOp>(step.getOperation())) {
      hold(value, prefetch.getDestination(), static_cast<uint64_t>(prefetch.getSlotOffset()), /*claimed=*/false);
    } else {
      program_.ranges.push_back({Program::Range::kTransient, 0, ir::bufferType(value).getBytes(), false});
      add(value, static_cast<int32_t>(program_.ranges.size() - 1), Program::kNone);
    }
  }

  Program::Op &begin(mlir::Operation &op, Kind kind) {
    Program::Op &made = program_.ops.emplace_back();
    made.kind = kind;
    made.firstUse = static_cast<uint32_t>(program_.uses.size());
    made.firstMade = static_cast<uint32_t>(program_.versions.size());
    program_.operations.push_back(&op);
    indexOf_[&op] = static_cast<int32_t>(program_.ops.size() - 1);
    return made;
  }
  void end() {
    program_.ops.back().endUse = static_cast<uint32_t>(program_.uses.size());
    program_.ops.back().endMade = static_cast<uint32_t>(program_.versions.size());
  }

  void use(Value value) {
    if (homes_.erase(value) != 0)
      versionOf_[value] = version(Program::kNone, Program::kNone, Program::kNone, 0);
    if (const auto it = versionOf_.find(value); it != versionOf_.end())
      program_.uses.push_back(it->second);
  }

  void hold(Value value, Value slot, uint64_t offset, bool claimed) {
    program_.ranges.push_back({slots_.lookup(slot.getDefiningOp()), offset, 0, claimed});
    add(value, static_cast<int32_t>(program_.ranges.size() - 1), Program::kNone);
  }
  void add(Value value, int32_t range, int32_t after) {
    const bool inSlot =
        range != Program::kNone && program_.ranges[static_cast<size_t>(range)].slot != Program::Range::kTransient;
    versionOf_[value] = version(static_cast<int32_t>(program_.ops.size() - 1), after, range,
                                inSlot ? ir::bufferType(value).getHeld() : 0);
  }
  uint32_t version(int32_t made, int32_t after, int32_t range, uint64_t held) {
    program_.versions.push_back({made, after, range, held});
    return static_cast<uint32_t>(program_.versions.size() - 1);
  }

  ProgramOf program_;
  llvm::DenseMap<mlir::Operation *, uint32_t> slots_;
  llvm::DenseMap<mlir::Operation *, int32_t> indexOf_;
  llvm::DenseMap<Value, uint32_t> versionOf_;
  llvm::DenseSet<Value> homes_; // that no op has used yet
};

} // namespace

mlir::FailureOr<ProgramOf> programOf(ir::IterationOp iteration) { return Reader().run(iteration); }

} // namespace headrace::passes
