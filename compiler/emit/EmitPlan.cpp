// SPDX-License-Identifier: Apache-2.0
#include "compiler/emit/EmitPlan.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/lower/LowerModel.h"
#include "compiler/lower/Mirrors.h"
#include "passes/Movables.h"
#include "passes/algorithms/RangeMap.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/BufferIndex.h"
#include "llvm/ADT/DenseMap.h"

namespace headrace::compiler {
namespace {

using plan::Operand;

plan::Space spaceOf(mlir::Value value) { return toPlan(ir::bufferType(value).getSpace()); }

uint32_t planBufferOfOp(const plan::BufferIndex &index, ir::MovableInterface movable) {
  const ir::Movable of = movable.movable();
  return planBufferOf(index, algorithms::SlabKey{{passes::kindOf(of), of.index}, of.miniBatch}, of.unit);
}

// Where a part of a cache of so many blocks begins in it, in bytes: before what of it lies behind, to the cache's end.
uint64_t kvPartOffset(ir::KvOp kv, const plan::Plan &plan, int64_t blocks, uint64_t behind) {
  return static_cast<uint64_t>(blocks) * plan.kvBlockBytes() - behind - kv.sizeInBytes();
}

// Of each layer's tail, where the iteration has such.
llvm::DenseMap<int32_t, uint64_t> tailBytesOf(ir::IterationOp iteration) {
  llvm::DenseMap<int32_t, uint64_t> bytes;
  for (ir::KvOp kv : iteration.block().getOps<ir::KvOp>())
    if (kv.getPart() == ir::KvPart::Tail)
      bytes[kv.getLayer()] = kv.sizeInBytes();
  return bytes;
}

class ScheduleEmitter {
public:
  ScheduleEmitter(ir::IterationOp iteration, const plan::Plan &plan, plan::Schedule &schedule)
      : iteration_(iteration), plan_(plan), index_(plan), schedule_(schedule), ranges_(iteration),
        tailBytes_(tailBytesOf(iteration)) {}

  // Refuses an op that no plan can say.
  absl::Status run() {
    for (mlir::Operation &op : iteration_.block()) {
      if (auto movable = llvm::dyn_cast<ir::MovableInterface>(op))
        addMovable(movable);
      else if (auto io = llvm::dyn_cast<ir::IoOp>(op))
        addIo(io);
      else if (auto staging = llvm::dyn_cast<ir::StagingOp>(op);
               staging && staging.getRole() == ir::StagingRole::Meta) {
        buffers_[staging.getBuffer()] = index_.io(plan::Io::Meta);
      } else if (auto slot = llvm::dyn_cast<ir::SlotOp>(op)) {
        const auto begin = static_cast<uint64_t>(slot.address().value);
        slotsBegin_ = std::min(slotsBegin_, begin);
        slotsEnd_ = std::max(slotsEnd_, begin + slot.sizeInBytes());
      } else if (auto carry = llvm::dyn_cast<ir::CarryOp>(op))
        entry.push_back({buffers_.lookup(carry.getSource()), firstByteOf(carry.getSource()) + carry.getRange().offset,
                         carry.getRange().bytes, byteAddress(carry.getResult()) + carry.getRange().offset,
                         carry.getDirty()});
      else if (auto carryOut = llvm::dyn_cast<ir::CarryOutOp>(op))
        exit.push_back({buffers_.lookup(ranges_.bufferOf(carryOut.getBuffer())),
                        firstByteOf(ranges_.bufferOf(carryOut.getBuffer())),
                        ir::bufferType(carryOut.getBuffer()).getHeld(), byteAddress(carryOut.getBuffer()),
                        carryOut.getDirty()});
      else if (auto wait = llvm::dyn_cast<ir::WaitOp>(op))
        waits_.push_back({steps_.lookup(ir::stepOf(wait.getEvent())), wait.getKind(), wait.getLane()});
      else if (auto step = llvm::dyn_cast<ir::StepInterface>(op))
        RETURN_IF_ERROR(addStep(step));
    }
    std::sort(schedule_.edges.begin(), schedule_.edges.end(),
              [](const plan::Edge &a, const plan::Edge &b) { return std::tie(a.to, a.from) < std::tie(b.to, b.from); });
    nameOverwrites();
    return absl::OkStatus();
  }

  std::vector<plan::Content> entry, exit;
  std::vector<std::optional<cost::OpSite>> sites;

private:
  struct PendingWait {
    uint32_t from;
    ir::WaitKind kind;
    ir::Lane lane;
  };

  // A cache in parts: the tail ends where the cache does, the mirror where the tail begins, or with the cache too.
  void addMovable(ir::MovableInterface movable) {
    buffers_[movable.atHome()] = planBufferOfOp(index_, movable);
    if (auto kv = llvm::dyn_cast<ir::KvOp>(movable.getOperation()); kv && kv.getPart() != ir::KvPart::Cache)
      firstByte_[kv.getBuffer()] =
          kvPartOffset(kv, plan_, plan_.placements[schedule_.placement].kvBlocks,
                       kv.getPart() == ir::KvPart::Mirror ? tailBytes_.lookup(kv.getLayer()) : 0);
  }
  // The ranges of all mini-batches are one buffer; so is what they have of the iteration buffer.
  void addIo(ir::IoOp io) {
    buffers_[io.getBuffer()] = index_.io(toPlan(io.getRole()));
    firstByte_[io.getBuffer()] = static_cast<uint64_t>(io.getMiniBatch()) * io.sizeInBytes();
  }
  // Of the plan's buffer that a value is a part of: 0 but for parts of a cache, and ranges of mini-batches.
  uint64_t firstByteOf(mlir::Value buffer) const { return firstByte_.lookup(buffer); }

  uint64_t byteAddress(mlir::Value value) const { return static_cast<uint64_t>(ranges_.addressOf(value).value); }

  absl::Status addStep(ir::StepInterface op) {
    const absl::StatusOr<StepForm> form = stepForm(op);
    if (!form.ok())
      return form.status();
    const auto index = static_cast<uint32_t>(schedule_.steps.size());
    const ir::StepInfo &info = op.stepInfo();
    if (!info.lane)
      return absl::InternalError(
          absl::StrCat("the op '", op->getName().getStringRef().str(), "' has no lane: its phase is not offsets"));
    plan::Step step;
    step.kind = form->kind;
    step.lane = toPlan(*info.lane);
    if (form->site)
      step.op = form->site->op;
    step.part = toPlan(info.part);
    step.layer = info.layer;
    step.miniBatch = info.miniBatch;
    step.direct = info.direct;
    step.resizable = info.resizable;
    if (auto evict = llvm::dyn_cast<ir::EvictOp>(op.getOperation()))
      step.dirtyOnly = info.resizable && evict.getWriteBack() == ir::WriteBack::Dirty;
    step.flops = info.flops;
    step.deviceBytes = info.deviceBytes;
    step.linkBytes = info.linkBytes;
    step.firstOperand = static_cast<uint32_t>(schedule_.operands.size());
    addOperands(op);
    step.operandCount = static_cast<uint32_t>(schedule_.operands.size()) - step.firstOperand;
    schedule_.steps.push_back(step);
    sites.push_back(form->site);
    steps_[op] = index;
    // The waits of this step's lane that stand before it are its edges.
    for (const PendingWait &wait : waits_)
      if (toPlan(wait.lane) == step.lane)
        schedule_.edges.push_back({wait.from, index, toPlan(wait.kind)});
    llvm::erase_if(waits_, [&](const PendingWait &wait) { return toPlan(wait.lane) == step.lane; });
    return absl::OkStatus();
  }

  // A copy into a slot waits for the readers of what was there. Where transients have used the range since, which only
  // their addresses tell, what it overwrites is what a step wrote: the edge is the same, its reason another. Accesses
  // that other edges, or the order of the lane, keep the copy behind are no reason.
  void nameOverwrites() {
    struct Last { // of each byte of the slots, what was done to it last
      enum class What : uint8_t { Copied, Read, Written } what;
      int64_t step;
    };
    using What = decltype(Last::what);
    using Clock = std::array<int64_t, plan::kLanes>; // by lane: its last step that has ended; -1: none
    algorithms::RangeMap<Last> last;
    std::array<Clock, plan::kLanes> now; // of a lane's next step
    for (Clock &clock : now)
      clock.fill(-1);
    std::vector<Clock> clocks; // when a step starts
    const auto learn = [&](Clock &clock, uint32_t from) {
      for (size_t lane = 0; lane < clock.size(); ++lane)
        clock[lane] = std::max(clock[lane], clocks[from][lane]);
      int64_t &of = clock[static_cast<size_t>(schedule_.steps[from].lane)];
      of = std::max<int64_t>(of, from);
    };
    size_t edge = 0;
    for (uint32_t index = 0; index < schedule_.steps.size(); ++index) {
      const plan::Step &step = schedule_.steps[index];
      const size_t firstEdge = edge;
      Clock &clock = now[static_cast<size_t>(step.lane)];
      const Clock before = clock;
      for (; edge < schedule_.edges.size() && schedule_.edges[edge].to == index; ++edge)
        learn(clock, schedule_.edges[edge].from);
      clocks.push_back(clock);
      clock[static_cast<size_t>(step.lane)] = index;
      for (uint32_t i = step.firstOperand; i < step.firstOperand + step.operandCount; ++i) {
        const Operand &operand = schedule_.operands[i];
        const uint64_t end = operand.address + operand.bytes;
        if (operand.space != plan::Space::Device || end <= slotsBegin_ || operand.address >= slotsEnd_)
          continue;
        if (step.kind != plan::StepKind::Copy || plan::toHost(step.lane)) {
          last.assign(operand.address, end, {operand.access == plan::Access::Read ? What::Read : What::Written, index});
          continue;
        }
        for (size_t e = firstEdge; e < edge; ++e) {
          plan::Edge &of = schedule_.edges[e];
          if (of.kind != plan::EdgeKind::War)
            continue;
          Clock without = before;
          for (size_t other = firstEdge; other < edge; ++other)
            if (other != e)
              learn(without, schedule_.edges[other].from);
          bool read = false, written = false;
          last.forEach(operand.address, end, [&](uint64_t, uint64_t, const Last &was) {
            const plan::Step &by = schedule_.steps[static_cast<size_t>(was.step)];
            if (was.what == What::Copied || was.step <= without[static_cast<size_t>(by.lane)])
              return;
            (was.what == What::Read ? read : written) = true;
          });
          if (written && !read)
            of.kind = plan::EdgeKind::Waw;
        }
        last.assign(operand.address, end, {What::Copied, index});
      }
    }
  }

  void addOperands(ir::StepInterface op) {
    accesses_.clear();
    op.getAccesses(accesses_);
    const size_t first = schedule_.operands.size();
    for (const ir::Access &access : accesses_) {
      if (!access.value) {
        addWorkspace(op, access);
        continue;
      }
      Operand operand;
      operand.buffer = bufferOf(op, access.value);
      operand.space = spaceOf(access.value);
      operand.access = toPlan(access.kind);
      operand.arg = toPlan(access.arg);
      operand.bufferOffset = firstByteOf(ranges_.bufferOf(access.value)) + access.range.offset;
      operand.bytes = access.range.bytes;
      operand.address = byteAddress(access.value) + access.range.offset;
      if (access.arg == ir::Arg::Meta) { // from the header of the step's mini-batch on
        const uint64_t header = op.stepInfo().miniBatch * kernels::metaFixedBytes(plan_.metaLayout);
        operand.bufferOffset += header;
        operand.bytes -= header;
        operand.address += header;
      }
      if (auto kv = ranges_.bufferOf(access.value).getDefiningOp<ir::KvOp>(); kv && access.arg == ir::Arg::Kv)
        operand.interleaved = kv.isInterleaved();
      if (access.arg == ir::Arg::Bias && llvm::isa<ir::NormOp>(op)) {
        // A norm's weight and bias are one operand; they lie behind each other.
        Operand &weights = schedule_.operands.back();
        weights.bytes = operand.bufferOffset + operand.bytes - weights.bufferOffset;
        continue;
      }
      if (access.arg == ir::Arg::KvHome && !schedule_.operands.empty() &&
          schedule_.operands.back().arg == plan::Arg::KvHome && schedule_.operands.size() > first) {
        // The mirror, right in front of the tail: one operand.
        Operand &home = schedule_.operands.back();
        home.bytes += operand.bytes;
        home.bufferOffset = operand.bufferOffset;
        home.address = operand.address;
        continue;
      }
      // The sampled tokens go to `output` anew each time; only `sampled` keeps those of other requests.
      if (access.arg == ir::Arg::Output && operand.access == plan::Access::ReadWrite)
        operand.access = plan::Access::Write;
      if (access.arg == ir::Arg::Residual && operand.access == plan::Access::ReadWrite) {
        // In place: read as the residual, written as the result.
        operand.access = plan::Access::Read;
        schedule_.operands.push_back(operand);
        operand.access = plan::Access::Write;
        operand.arg = plan::Arg::Y;
      }
      schedule_.operands.push_back(operand);
    }
  }

  void addWorkspace(ir::StepInterface op, const ir::Access &access) {
    const ir::Workspace &workspace = *op.workspace();
    Operand operand;
    operand.buffer =
        addLocal("workspace", plan::BufferKind::Workspace, op.stepInfo(), workspace.bytes, workspace.address);
    operand.access = plan::Access::Write;
    operand.arg = plan::Arg::Workspace;
    operand.bytes = access.range.bytes;
    operand.address = static_cast<uint64_t>(workspace.address.value);
    schedule_.operands.push_back(operand);
  }

  // A value that no persistent op and no copy made is a step's new buffer: a transient. What the cpu lane works on is
  // the transient whose rows are there: qkv as it was staged, what attention makes as it is fetched.
  uint32_t bufferOf(ir::StepInterface op, mlir::Value value) {
    const mlir::Value buffer = ranges_.bufferOf(value);
    if (auto staging = buffer.getDefiningOp<ir::StagingOp>(); staging && staging.getRole() != ir::StagingRole::Meta)
      return stagedOf(op, staging, value);
    const auto [entry, fresh] = buffers_.try_emplace(buffer, 0);
    if (fresh)
      entry->second = addLocal(stepForm(buffer.getDefiningOp())->result, plan::BufferKind::Activation, op.stepInfo(),
                               ir::bufferType(buffer).getBytes(), ranges_.addressOf(buffer));
    return entry->second;
  }

  uint32_t stagedOf(ir::StepInterface op, ir::StagingOp staging, mlir::Value value) {
    uint32_t local = plan::kNone;
    if (staging.getRole() == ir::StagingRole::Scratch) {
      local = addLocal("workspace", plan::BufferKind::Workspace, op.stepInfo(), staging.sizeInBytes(), ir::Address());
    } else if (auto stage = llvm::dyn_cast<ir::StageOp>(op.getOperation())) {
      local = staged_[stage.getStaged()] = bufferOf(op, stage.getBuffer());
    } else if (auto attention = llvm::dyn_cast<ir::HostAttentionOp>(op.getOperation());
               attention && value == attention.getInto()) {
      ir::FetchRowsOp fetch;
      for (mlir::Operation *user : attention.getOut().getUsers())
        if (auto of = llvm::dyn_cast<ir::FetchRowsOp>(user))
          fetch = of;
      local = staged_[attention.getOut()] = bufferOf(fetch, fetch.getY());
    } else {
      local = staged_.lookup(value);
    }
    schedule_.locals[local - plan_.buffers.size()].hostAddress = static_cast<uint64_t>(staging.address().value);
    return local;
  }

  uint32_t addLocal(const char *name, plan::BufferKind kind, const ir::StepInfo &step, uint64_t bytes,
                    ir::Address address) {
    schedule_.locals.push_back({{name, kind, step.layer, bytes, step.miniBatch},
                                address.placed() ? static_cast<uint64_t>(address.value) : plan::kNowhere});
    return static_cast<uint32_t>(plan_.buffers.size() + schedule_.locals.size() - 1);
  }

  ir::IterationOp iteration_;
  const plan::Plan &plan_;
  const plan::BufferIndex index_;
  plan::Schedule &schedule_;
  const ir::Ranges ranges_;
  llvm::DenseMap<mlir::Value, uint32_t> buffers_; // by the value that is the buffer
  llvm::DenseMap<mlir::Value, uint32_t> staged_;  // by version of what the cpu lane works on
  llvm::DenseMap<int32_t, uint64_t> tailBytes_;
  llvm::DenseMap<mlir::Value, uint64_t> firstByte_; // of parts of caches, and ranges
  llvm::DenseMap<mlir::Operation *, uint32_t> steps_;
  std::vector<PendingWait> waits_;
  uint64_t slotsBegin_ = std::numeric_limits<uint64_t>::max(), slotsEnd_ = 0;
  llvm::SmallVector<ir::Access> accesses_;
};

// Where its first mini-batch's range is; those of the others follow.
void addIoHome(const plan::Plan &plan, plan::Placement &placement, ir::IoOp io) {
  if (io.getMiniBatch() != 0)
    return;
  const uint32_t buffer = plan.ioBuffer(toPlan(io.getRole()));
  placement.extents.push_back(
      {buffer, plan::Space::Device, false, 0, plan.buffers[buffer].bytes, static_cast<uint64_t>(io.address().value)});
}

} // namespace

uint32_t addPlacement(ir::IterationOp iteration, plan::Placement placement, PlanWriter &writer) {
  plan::Plan &plan = writer.plan();
  const plan::BufferIndex index(plan);
  if (placement.kvBlocks == 0)
    placement.kvBlocks = plan.kvBlocks;
  const auto home = [&](uint32_t buffer, mlir::Value value, uint64_t offset = 0, bool direct = false,
                        bool interleaved = false) {
    const ir::BufferType type = ir::bufferType(value);
    placement.extents.push_back({buffer, spaceOf(value), direct, offset, type.getBytes(),
                                 static_cast<uint64_t>(ir::addressOf(value).value), interleaved});
  };
  bool table = false; // the embedding is read directly
  for (mlir::Operation &op : iteration.block()) {
    if (auto movable = llvm::dyn_cast<ir::MovableInterface>(op)) {
      const uint32_t buffer = planBufferOfOp(index, movable);
      const mlir::Value value = movable.atHome();
      // Rows are appended over the link.
      const bool direct = passes::traitsOf(movable.movable()).written == algorithms::Written::Appended &&
                          !ir::bufferType(value).isOnDevice();
      if (auto kv = llvm::dyn_cast<ir::KvOp>(op); !kv)
        home(buffer, value, 0, direct);
      else if (kv.getPart() != ir::KvPart::Mirror)
        home(buffer, value, kv.getPart() == ir::KvPart::Tail ? kvPartOffset(kv, plan, placement.kvBlocks, 0) : 0,
             direct, kv.isInterleaved());
    } else if (auto io = llvm::dyn_cast<ir::IoOp>(op))
      addIoHome(plan, placement, io);
    else if (auto slot = llvm::dyn_cast<ir::SlotOp>(op))
      placement.slots.push_back({static_cast<uint64_t>(slot.address().value), slot.sizeInBytes()});
    else if (auto embed = llvm::dyn_cast<ir::EmbedOp>(op))
      table = embed.stepInfo().direct;
  }
  std::sort(placement.extents.begin(), placement.extents.end(), [](const plan::Extent &a, const plan::Extent &b) {
    return std::tie(a.buffer, a.bufferOffset) < std::tie(b.buffer, b.bufferOffset);
  });
  for (plan::Extent &extent : placement.extents)
    if (extent.buffer == index.weight(0))
      extent.direct = table;
  plan.placements.push_back(std::move(placement));
  return static_cast<uint32_t>(plan.placements.size() - 1);
}

absl::StatusOr<EmittedSchedule> addSchedule(ir::IterationOp iteration, const std::string &name, uint32_t placement,
                                            PlanWriter &writer) {
  plan::Plan &plan = writer.plan();
  plan::Schedule schedule;
  schedule.name = name;
  schedule.placement = placement;
  schedule.iterationClass = toPlan(iteration.getIterationClass());
  schedule.maxTokens = iteration.getTokens();
  schedule.maxSequences = iteration.getSequences();
  schedule.maxContext = iteration.getMaxContext();
  schedule.kvBlocks = iteration.getKvBlocks();
  schedule.phase = static_cast<uint32_t>(iteration.getCyclePhase());
  schedule.period = static_cast<uint32_t>(iteration.getPeriod());
  ScheduleEmitter emitter(iteration, plan, schedule);
  if (absl::Status status = emitter.run(); !status.ok())
    return absl::Status(status.code(), absl::StrCat("schedule '", name, "': ", status.message()));
  schedule.entryState = writer.stateOf(placement, std::move(emitter.entry));
  schedule.exitState = writer.stateOf(placement, std::move(emitter.exit));
  plan.schedules.push_back(std::move(schedule));
  return EmittedSchedule{static_cast<uint32_t>(plan.schedules.size() - 1), std::move(emitter.sites)};
}

} // namespace headrace::compiler
