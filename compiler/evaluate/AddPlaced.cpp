// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/AddPlaced.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/BufferIndex.h"

namespace headrace::compiler {
namespace {

using algorithms::MovableKind;
using algorithms::Movement;
using algorithms::Program;
using algorithms::WriteBack;
using algorithms::Written;

static_assert(algorithms::kLanes == plan::kLanes &&
              static_cast<int>(algorithms::Lane::H2D) == static_cast<int>(plan::Lane::H2D) &&
              static_cast<int>(algorithms::Lane::D2H) == static_cast<int>(plan::Lane::D2H) &&
              static_cast<int>(algorithms::WaitKind::War) == static_cast<int>(plan::EdgeKind::War) &&
              static_cast<int>(algorithms::WaitKind::Pacing) == static_cast<int>(plan::EdgeKind::Pacing));

// Where the buffers of a placement are, as a plan says it.
class Places {
public:
  Places(const Iterations &iterations, const plan::Plan &plan, const PlacedCandidate &placed)
      : target_(iterations.target()), plan_(plan), index_(plan), placed_(placed),
        homes_(homesOf(placed, target_, placed.iterations.front().of)), blocks_(cacheBlocksOf(homes_)) {}

  uint32_t buffers() const { return static_cast<uint32_t>(plan_.buffers.size()); }
  uint32_t planBuffer(const StepBuffer &of) const {
    return of.isMovable() ? planBufferOf(index_, of.key(), of.unit) : index_.io(of.io);
  }

  // In the slab; of a cache its tail.
  uint64_t onHost(const StepBuffer &of) const {
    const int64_t mirrored = of.is(MovableKind::Kv) && homes_.mirroredFrom
                                 ? std::max<int64_t>(0, blocks_.resident - *homes_.mirroredFrom)
                                 : 0;
    return placed_.host->at.at(of.key()) + static_cast<uint64_t>(mirrored) * target_.kvBlockBytes;
  }
  // Of the cpu lane's ranges, by buffer of the list.
  uint64_t onHost(const Steps &steps, BufferIndex staging) const {
    uint64_t at = *placed_.host->staging;
    for (BufferIndex i = 0; i < staging; ++i)
      at += steps.buffer(i).kind == StepBuffer::Kind::Staging ? steps.buffer(i).bytes : 0;
    return at;
  }
  // Of what is moved of a buffer, in it.
  uint64_t firstByte(const StepBuffer &of) const {
    return of.is(MovableKind::Kv) ? static_cast<uint64_t>(blocks_.resident) * target_.kvBlockBytes : 0;
  }

  plan::Placement placement(const Steps &steps, plan::Placement placement) const {
    if (placement.kvBlocks == 0)
      placement.kvBlocks = plan_.kvBlocks;
    const algorithms::Residency &residency = placed_.candidate->residency;
    const auto add = [&](const StepBuffer &of, plan::Space space, bool direct, uint64_t offset, uint64_t bytes,
                         uint64_t address) {
      placement.extents.push_back({planBuffer(of), space, direct, offset, bytes, address});
    };
    std::vector<uint8_t> streams(steps.own.size());
    for (const StepBuffer &of : steps.buffers) {
      if (!of.isMovable())
        continue;
      if (of.traits().written == Written::Whole) {
        if (std::exchange(streams[static_cast<size_t>(of.miniBatch)], 1) == 0)
          add(of, plan::Space::Host, false, 0, of.bytes, onHost(of));
      } else if (of.is(MovableKind::Kv)) {
        if (blocks_.tail())
          add(of, plan::Space::Host, true, firstByte(of),
              static_cast<uint64_t>(blocks_.here - blocks_.resident) * target_.kvBlockBytes, onHost(of));
      } else if (residency.isAway(of.of)) { // rows are appended, and a table that embed reads is read, over the link
        const bool direct = of.traits().written == Written::Appended || of.unit == 0;
        add(of, plan::Space::Host, direct, 0, of.bytes, onHost(of));
      }
    }
    for (const auto &[buffer, bytes, address] : placed_.below) {
      const StepBuffer &of = steps.buffer(buffer);
      if (of.kind != StepBuffer::Kind::Io)
        add(of, plan::Space::Device, false, 0, bytes, address);
      else if (of.miniBatch == 0) // the ranges of the others follow: one buffer
        add(of, plan::Space::Device, false, 0, plan_.buffers[planBuffer(of)].bytes, address);
      if (of.is(MovableKind::Kv))
        placement.extents.back().interleaved = placed_.host->kv.interleaved;
    }
    for (size_t i = 0; i < placed_.homes.units.size(); ++i) {
      const StepBuffer &of = steps.buffer(steps.ofUnit(static_cast<int32_t>(placed_.homes.units[i].first)));
      add(of, plan::Space::Device, false, 0, of.bytes, placed_.homeAddress[i]);
    }
    std::sort(placement.extents.begin(), placement.extents.end(), [](const plan::Extent &a, const plan::Extent &b) {
      return std::tie(a.buffer, a.bufferOffset) < std::tie(b.buffer, b.bufferOffset);
    });
    for (size_t slot = 0; slot < placed_.slotBytes.size(); ++slot)
      placement.slots.push_back({placed_.arena.slots[slot], placed_.slotBytes[slot]});
    return placement;
  }

private:
  const Target &target_;
  const plan::Plan &plan_;
  const plan::BufferIndex index_;
  const PlacedCandidate &placed_;
  const Homes homes_;
  const CacheBlocks blocks_;
};

// One schedule, and what its steps are to the cost model.
class ScheduleWriter {
public:
  ScheduleWriter(const Iterations &iterations, const Places &places, const PlacedCandidate &placed,
                 const PlacedIteration &of, plan::Schedule &schedule)
      : iterations_(iterations), places_(places), placed_(placed), of_(of),
        steps_(iterations.steps(of.of.iterationClass)), homes_(homesOf(placed, iterations.target(), of.of)),
        schedule_(schedule) {}

  std::vector<std::optional<cost::OpSite>> sites;
  std::vector<plan::Content> entry, exit;

  void run(const std::vector<uint64_t> &transients) {
    locals(transients);
    std::vector<uint32_t> numberOf(of_.program.ops.size());
    schedule_.steps.reserve(numberOf.size());
    for (size_t i = 0; i < numberOf.size(); ++i) {
      const Program::Op &op = of_.program.ops[i];
      const auto origin = static_cast<size_t>(of_.program.origin[i]);
      numberOf[i] = static_cast<uint32_t>(schedule_.steps.size());
      switch (op.kind) {
      case Program::Kind::Compute:
        steps_.steps[origin].copiesDown() ? copyDown(steps_.steps[origin])
                                          : compute(op, steps_.steps[origin], of_.direct[origin]);
        break;
      case Program::Kind::Bring:
      case Program::Kind::Evict:
        copy(op, of_.plan.movements[origin]);
        break;
      case Program::Kind::Carry:
        entry.push_back(contentOf(of_.plan.movements[origin].moved, op.firstMade, of_.plan.movements[origin].dirty));
        break;
      case Program::Kind::CarryOut:
        exit.push_back(
            contentOf(of_.plan.out[origin].moved, of_.program.uses[op.firstUse], of_.plan.out[origin].dirty));
        break;
      default:
        break;
      }
    }
    for (size_t i = 0; i < of_.waits.size(); ++i)
      if (of_.order.waiter[i] != algorithms::OrderedLanes::kNobody)
        schedule_.edges.push_back(
            {numberOf[of_.waits[i].of], of_.order.waiter[i], static_cast<plan::EdgeKind>(of_.order.kinds[i])});
    std::sort(schedule_.edges.begin(), schedule_.edges.end(),
              [](const plan::Edge &a, const plan::Edge &b) { return std::tie(a.to, a.from) < std::tie(b.to, b.from); });
  }

private:
  // Only where they are, and how large; nowhere yet where nothing is laid out.
  void locals(const std::vector<uint64_t> &transients) {
    size_t next = 0;
    localOf_.assign(steps_.buffers.size(), plan::kNone);
    const auto add = [&](plan::BufferKind kind, const Step &of, uint64_t bytes, uint64_t address,
                         uint64_t hostAddress = plan::kNowhere) {
      schedule_.locals.push_back(
          {{"", kind, of.layer, bytes, static_cast<uint32_t>(of.miniBatch)}, address, hostAddress});
      return static_cast<uint32_t>(schedule_.locals.size() - 1);
    };
    const auto inArena = [&] { return transients.empty() ? 0 : transients[next++]; };
    for (const Step &step : steps_.steps) {
      if (step.y != kNoBuffer && !step.inPlace)
        localOf_[static_cast<size_t>(step.y)] =
            add(plan::BufferKind::Activation, step, steps_.buffer(step.y).bytes, inArena());
      if (step.workspaceBytes > 0)
        add(plan::BufferKind::Workspace, step, step.workspaceBytes, inArena());
      const auto &staging = steps_.own[static_cast<size_t>(step.miniBatch)].staging;
      if (step.copiesDown() && steps_.buffer(step.x).isTransient())
        local(step.x).hostAddress = places_.onHost(steps_, step.y);
      if (step.op == kernels::Op::FetchRows)
        local(step.y).hostAddress = places_.onHost(steps_, step.x);
      if (const BufferIndex scratch = staging[static_cast<size_t>(Staging::Scratch)];
          scratch != kNoBuffer && step.onCpu() && step.op == kernels::Op::Attention)
        add(plan::BufferKind::Workspace, step, steps_.buffer(scratch).bytes, plan::kNowhere,
            places_.onHost(steps_, scratch));
    }
  }
  plan::Local &local(BufferIndex transient) { return schedule_.locals[localOf_[static_cast<size_t>(transient)]]; }

  // Rows, or the iteration buffer, for the cpu lane.
  void copyDown(const Step &of) {
    const StepBuffer &buffer = steps_.buffer(of.x);
    plan::Step step;
    step.kind = plan::StepKind::Copy;
    step.lane = of.lane;
    step.part = of.part;
    step.layer = of.layer;
    step.miniBatch = static_cast<uint8_t>(of.miniBatch);
    step.resizable = buffer.isTransient();
    step.deviceBytes = of.deviceBytes;
    step.linkBytes = of.linkBytes;
    step.firstOperand = static_cast<uint32_t>(schedule_.operands.size());
    step.operandCount = 2;
    plan::Operand from{.access = plan::Access::Read, .arg = plan::Arg::Source, .bytes = buffer.bytes};
    if (buffer.isTransient()) {
      from.buffer = places_.buffers() + localOf_[static_cast<size_t>(of.x)];
      from.address = local(of.x).address;
    } else {
      from.buffer = places_.planBuffer(buffer);
      for (const auto &[index, bytes, address] : placed_.below)
        if (index == of.x)
          from.address = address;
    }
    plan::Operand to = from;
    to.space = plan::Space::Host;
    to.access = plan::Access::Write;
    to.arg = plan::Arg::Destination;
    to.address = places_.onHost(steps_, of.y);
    schedule_.operands.push_back(from);
    schedule_.operands.push_back(to);
    schedule_.steps.push_back(step);
    sites.emplace_back();
  }

  void compute(const Program::Op &op, const Step &of, bool direct) {
    plan::Step step;
    step.kind = of.op ? plan::StepKind::Compute : plan::StepKind::Publish;
    step.lane = static_cast<plan::Lane>(op.lane);
    if (of.op)
      step.op = *of.op;
    step.part = of.part;
    step.layer = of.layer;
    step.miniBatch = static_cast<uint8_t>(of.miniBatch);
    step.direct = direct;
    step.flops = of.flops;
    step.deviceBytes = of.deviceBytes;
    if (of.op == kernels::Op::FetchRows) {
      step.linkBytes = of.linkBytes;
    } else if (direct) {
      const cost::Work work = iterations_.directWork(*of.site(), of_.of.iterationClass, homeBytes());
      step.deviceBytes = work.deviceBytes;
      step.linkBytes = work.linkBytes;
      overTheLink(of, step);
    }
    schedule_.steps.push_back(step);
    sites.push_back(of.site());
  }

  // The home that a direct step uses: which, and which way.
  void overTheLink(const Step &of, plan::Step &step) {
    const BufferIndex home = of.op == kernels::Op::RopeAppend  ? of.kv
                             : of.op == kernels::Op::ActAppend ? of.act
                                                               : of.unit;
    step.firstOperand = static_cast<uint32_t>(schedule_.operands.size());
    step.operandCount = 1;
    plan::Operand operand;
    operand.buffer = places_.planBuffer(steps_.buffer(home));
    operand.space = plan::Space::Host;
    operand.access = of.op == kernels::Op::Embed ? plan::Access::Read : plan::Access::ReadWrite;
    operand.arg = of.op == kernels::Op::RopeAppend  ? plan::Arg::KvHome
                  : of.op == kernels::Op::ActAppend ? plan::Arg::Act
                                                    : plan::Arg::Table;
    schedule_.operands.push_back(operand);
  }

  // Of a cache: what rows are written to at home.
  uint64_t homeBytes() const {
    const CacheBlocks blocks = cacheBlocksOf(homes_);
    int64_t written = 0;
    if (blocks.tail() && homes_.bringsTails && writeBackOf(homes_) == WriteBack::Mirror)
      written += blocks.here - blocks.resident;
    if (homes_.mirroredFrom)
      written += std::max<int64_t>(0, blocks.resident - *homes_.mirroredFrom);
    return static_cast<uint64_t>(written) * iterations_.target().kvBlockBytes;
  }

  void copy(const Program::Op &op, const Movement &movement) {
    const algorithms::Moved &moved = of_.moved.moved[movement.moved];
    const bool back = op.kind == Program::Kind::Evict;
    plan::Step step;
    step.kind = plan::StepKind::Copy;
    step.lane = static_cast<plan::Lane>(op.lane);
    step.part = plan::Part::Movement;
    step.layer = of_.moved.items[moved.item].layer;
    step.miniBatch = static_cast<uint8_t>(moved.miniBatch);
    step.resizable = moved.resizable();
    step.dirtyOnly = step.resizable && movement.back == WriteBack::Dirty;
    step.linkBytes = step.deviceBytes = movement.bytes;
    step.firstOperand = static_cast<uint32_t>(schedule_.operands.size());
    step.operandCount = 2;
    const StepBuffer &buffer = steps_.buffer(of_.moved.buffers[movement.moved]);
    const uint32_t index = places_.planBuffer(buffer);
    const uint64_t first = places_.firstByte(buffer) + movement.from;
    const uint64_t device = addressOf(back ? of_.program.uses[op.firstUse] : op.firstMade) + movement.from;
    plan::Operand host{index,
                       plan::Space::Host,
                       plan::Access::Read,
                       plan::Arg::Source,
                       first,
                       movement.bytes,
                       places_.onHost(buffer) + movement.from};
    plan::Operand here{index, plan::Space::Device, plan::Access::Write, plan::Arg::Destination, first, movement.bytes,
                       device};
    if (back) {
      std::swap(host.access, here.access);
      std::swap(host.arg, here.arg);
    }
    schedule_.operands.push_back(back ? here : host);
    schedule_.operands.push_back(back ? host : here);
    schedule_.steps.push_back(step);
    sites.emplace_back();
  }

  // In a slot: byte 0 of what is moved.
  uint64_t addressOf(uint32_t version) const {
    const Program::Range &range = of_.program.ranges[static_cast<size_t>(of_.program.versions[version].range)];
    return placed_.arena.slots[range.slot] + range.offset;
  }

  plan::Content contentOf(size_t moved, uint32_t version, bool dirty) const {
    const StepBuffer &buffer = steps_.buffer(of_.moved.buffers[moved]);
    return {places_.planBuffer(buffer), places_.firstByte(buffer), of_.program.versions[version].held,
            addressOf(version), dirty};
  }

  const Iterations &iterations_;
  const Places &places_;
  const PlacedCandidate &placed_;
  const PlacedIteration &of_;
  const Steps &steps_;
  const Homes homes_;
  plan::Schedule &schedule_;
  std::vector<uint32_t> localOf_; // by buffer of the list
};

} // namespace

plan::Placement placementOf(const Iterations &iterations, const plan::Plan &plan, const PlacedCandidate &placed) {
  return Places(iterations, plan, placed)
      .placement(iterations.steps(placed.iterations.front().of.iterationClass),
                 iterations.described(*placed.candidate));
}

PlacedSchedule scheduleOf(const Iterations &iterations, const plan::Plan &plan, const PlacedCandidate &placed,
                          size_t iteration, uint32_t placement) {
  const Places places(iterations, plan, placed);
  const PlacedIteration &of = placed.iterations[iteration];
  const cost::Bucket limits = Target::limits(iterations.buckets(of.of.iterationClass));
  PlacedSchedule made;
  plan::Schedule &schedule = made.schedule;
  schedule.name = of.of.scheduleName(*placed.candidate);
  schedule.placement = placement;
  schedule.iterationClass = of.of.iterationClass;
  schedule.maxTokens = limits.tokens;
  schedule.maxSequences = limits.sequences;
  schedule.maxContext = limits.context;
  schedule.kvBlocks = of.of.kvBlocks;
  schedule.phase = static_cast<uint32_t>(of.of.phase);
  schedule.period = static_cast<uint32_t>(of.of.period);
  ScheduleWriter written(iterations, places, placed, of, schedule);
  written.run(placed.isLaidOut() ? placed.arena.transients[iteration] : std::vector<uint64_t>());
  made.sites = std::move(written.sites);
  made.entry = std::move(written.entry);
  made.exit = std::move(written.exit);
  return made;
}

void addPlaced(PlanWriter &writer, Iterations &iterations, const PlacedCandidate &placed) {
  plan::Plan &plan = writer.plan();
  plan.placements.push_back(placementOf(iterations, plan, placed));
  const auto placement = static_cast<uint32_t>(plan.placements.size() - 1);
  for (size_t i = 0; i < placed.iterations.size(); ++i) {
    PlacedSchedule made = scheduleOf(iterations, plan, placed, i, placement);
    made.schedule.entryState = writer.stateOf(placement, std::move(made.entry));
    made.schedule.exitState = writer.stateOf(placement, std::move(made.exit));
    plan.schedules.push_back(std::move(made.schedule));
    const auto index = static_cast<uint32_t>(plan.schedules.size() - 1);
    const sim::Simulator simulator(plan, plan.schedules.back());
    for (const cost::Bucket &bucket : iterations.buckets(placed.iterations[i].of.iterationClass))
      plan.variants.push_back(iterations.variantOf(plan, index, made.sites, bucket, simulator));
  }
}

} // namespace headrace::compiler
