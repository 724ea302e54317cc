// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/GraphSteps.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::core {
namespace {

using plan::kNone;
using plan::Lane;
using plan::Operand;
using plan::Space;
using plan::StepKind;

absl::Status checkStep(const GraphSource &source, uint32_t index) {
  const plan::Schedule &schedule = *source.schedule;
  const plan::Step &step = schedule.steps[index];
  const auto lane = [&] { return absl::StrCat("lane '", plan::laneName(step.lane), "'"); };
  if (step.firstOperand > schedule.operands.size() || step.operandCount > schedule.operands.size() - step.firstOperand)
    return refuseStep(schedule, index, "its operands are outside the schedule's list");
  if (step.kind == StepKind::Copy)
    return absl::OkStatus();
  if (!plan::computes(step.lane) || (step.lane == Lane::Cpu && step.kind == StepKind::Publish))
    return refuseStep(schedule, index,
                      absl::StrCat(step.kind == StepKind::Publish ? "publish" : "compute", " in ", lane()));
  if (source.variant == nullptr)
    return refuseStep(schedule, index, "a transition has copies only");
  return absl::OkStatus();
}

// `span`: from the first byte of the operand to its last, what lies in between included.
absl::StatusOr<std::byte *> sideOf(const plan::Schedule &schedule, uint32_t step, const Operand &operand, uint64_t span,
                                   const GraphSpaces &spaces) {
  const bool host = operand.space == Space::Host;
  const uint64_t limit = host ? spaces.hostBytes : spaces.deviceBytes;
  if (span > limit || operand.address > limit - span)
    return refuseStep(schedule, step,
                      absl::StrCat("bytes [", operand.address, ", +", span, ") are outside the ",
                                   host ? "host slab" : "arena", " of ", limit));
  return (host ? spaces.bases.host : spaces.bases.device) + operand.address;
}

bool isCache(const plan::Plan &plan, const Operand &operand) {
  return operand.buffer < plan.buffers.size() && plan.buffers[operand.buffer].kind == plan::BufferKind::Kv;
}

bool isResidual(const plan::Plan &plan, const Operand &operand) {
  return operand.buffer < plan.buffers.size() && plan.buffers[operand.buffer].kind == plan::BufferKind::Residual;
}
bool isAct(const plan::Plan &plan, const Operand &operand) {
  return operand.buffer < plan.buffers.size() && plan.buffers[operand.buffer].kind == plan::BufferKind::Act;
}

// Gives the copy the rows of its interleaved side.
absl::Status setRows(const plan::Plan &plan, const plan::Schedule &schedule, uint32_t step, const Operand &device,
                     CopySides &copy) {
  const uint64_t block = isCache(plan, device) ? plan.kvBlockBytes() : 0;
  if (block == 0 || device.bytes % block != 0)
    return refuseStep(schedule, step,
                      absl::StrCat("an interleaved copy of ", device.bytes,
                                   " bytes, expected blocks of a layer's cache, of ", block));
  if (block == plan.kvStride() || device.bytes <= block)
    return absl::OkStatus(); // of one layer they follow each other, and one is one run
  copy.rowBytes = block;
  copy.pitch = plan.kvStride();
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<GraphSource> graphSource(const plan::Plan &plan, const GraphKey &key) {
  const size_t count = key.transition ? plan.transitions.size() : plan.variants.size();
  const char *what = key.transition ? "transition" : "variant";
  if (key.index >= count)
    return absl::InvalidArgumentError(absl::StrCat(what, " ", key.index, " to build, the plan has ", count));
  const uint32_t schedule = key.transition ? plan.transitions[key.index].schedule : plan.variants[key.index].schedule;
  if (schedule >= plan.schedules.size())
    return absl::InvalidArgumentError(
        absl::StrCat(what, " ", key.index, ": schedule ", schedule, ", the plan has ", plan.schedules.size()));
  GraphSource source{.schedule = &plan.schedules[schedule]};
  if (key.transition) {
    source.durationsNs = plan.transitions[key.index].durationsNs;
  } else {
    const plan::Variant &variant = plan.variants[key.index];
    source.variant = &variant;
    source.durationsNs = variant.durationsNs;
    source.bucket = {variant.newTokens, variant.sequences, variant.context};
  }
  return source;
}

absl::Status refuseStep(const plan::Schedule &schedule, uint32_t step, std::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat("schedule '", schedule.name, "', step ", step, ": ", std::string(message)));
}

absl::Status checkSteps(const GraphSource &source) {
  const plan::Schedule &schedule = *source.schedule;
  int publishes = 0;
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    RETURN_IF_ERROR(checkStep(source, i));
    publishes += schedule.steps[i].kind == StepKind::Publish;
  }
  // An iteration without its tokens would be waited for without end, a transition has none.
  if (const int expected = source.variant == nullptr ? 0 : 1; publishes != expected)
    return absl::InvalidArgumentError(
        absl::StrCat("schedule '", schedule.name, "': ", publishes, " publish steps, expected ", expected));
  return absl::OkStatus();
}

absl::StatusOr<CopySides> copySides(const plan::Plan &plan, const plan::Schedule &schedule, uint32_t index,
                                    const GraphSpaces &spaces) {
  const plan::Step &step = schedule.steps[index];
  if (step.operandCount != 2)
    return refuseStep(schedule, index, absl::StrCat("a copy has 2 operands, this one ", step.operandCount));
  const Operand &source = schedule.operands[step.firstOperand];
  const Operand &destination = schedule.operands[step.firstOperand + 1];
  const bool toDevice = step.lane == Lane::H2D;
  if (plan::computes(step.lane) || source.space != (toDevice ? Space::Host : Space::Device) ||
      destination.space != (toDevice ? Space::Device : Space::Host))
    return refuseStep(
        schedule, index,
        absl::StrCat("a copy in lane '", plan::laneName(step.lane), "' whose sides are not those of its direction"));
  if (source.bytes != destination.bytes)
    return refuseStep(schedule, index, absl::StrCat("a copy of ", source.bytes, " bytes to ", destination.bytes));
  CopySides copy{.toDevice = toDevice, .bytes = source.bytes};
  const Operand &device = toDevice ? destination : source, &host = toDevice ? source : destination;
  if (host.interleaved)
    return refuseStep(schedule, index, "a copy whose side on the host is interleaved, expected one run");
  if (device.interleaved)
    RETURN_IF_ERROR(setRows(plan, schedule, index, device, copy));
  if (step.dirtyOnly && !step.resizable)
    return refuseStep(schedule, index, "a copy of what was written whose size may not change");
  if (step.resizable) {
    ASSIGN_OR_RETURN(sized, sizedCopy(plan, schedule, index));
    copy.sized = sized;
  }
  uint64_t span = device.bytes;
  if (copy.inRows() && (__builtin_mul_overflow(copy.rows() - 1, copy.pitch, &span) ||
                        __builtin_add_overflow(span, copy.rowBytes, &span)))
    span = std::numeric_limits<uint64_t>::max();
  ASSIGN_OR_RETURN(from, sideOf(schedule, index, source, toDevice ? host.bytes : span, spaces));
  ASSIGN_OR_RETURN(to, sideOf(schedule, index, destination, toDevice ? span : host.bytes, spaces));
  copy.source = from;
  copy.destination = to;
  return copy;
}

void copyPart(const CopySides &copy, uint64_t from, uint64_t bytes) {
  if (!copy.inRows()) {
    std::memcpy(copy.destination + from, copy.source + from, bytes);
    return;
  }
  for (const uint64_t end = from + bytes; from < end;) {
    const uint64_t row = from / copy.rowBytes, part = std::min(end, (row + 1) * copy.rowBytes) - from;
    const uint64_t device = row * copy.pitch + from % copy.rowBytes;
    std::memcpy(copy.destination + (copy.toDevice ? device : from), copy.source + (copy.toDevice ? from : device),
                part);
    from += part;
  }
}

absl::StatusOr<SizedCopy> sizedCopy(const plan::Plan &plan, const plan::Schedule &schedule, uint32_t index) {
  const plan::Step &step = schedule.steps[index];
  if (step.kind != StepKind::Copy || step.operandCount != 2)
    return refuseStep(schedule, index, "its size may change, but it is no copy");
  const Operand &source = schedule.operands[step.firstOperand];
  const bool staged = source.buffer >= plan.buffers.size(); // rows for the cpu lane: of q, k and v
  const bool ofRows = isResidual(plan, source) || staged;
  const bool ofAct = isAct(plan, source);
  const uint64_t block = staged ? static_cast<uint64_t>(plan.model->qkvRows()) * model::dtypeBytes(plan.activationDtype)
                         : ofRows                ? static_cast<uint64_t>(plan.model->hidden) * sizeof(float)
                         : isCache(plan, source) ? plan.kvBlockBytes()
                         : ofAct                 ? plan.actBlockBytes()
                                                 : 0;
  if (block == 0 || source.bufferOffset % block != 0)
    return refuseStep(schedule, index,
                      absl::StrCat("its size may change, but it begins at byte ", source.bufferOffset, " of buffer ",
                                   source.buffer, ", expected a layer's cache and the beginning of a block of ", block,
                                   " bytes, or a residual stream"));
  if (step.dirtyOnly && (step.lane != Lane::D2H || schedule.iterationClass == plan::IterationClass::Transition))
    return refuseStep(schedule, index, "a copy of what was written, expected one to the host in an iteration");
  return SizedCopy{.firstBlock = static_cast<int64_t>(source.bufferOffset / block),
                   .blockBytes = block,
                   .bytes = source.bytes,
                   .wholeBlocks = source.interleaved || schedule.operands[step.firstOperand + 1].interleaved,
                   .dirtyOnly = step.dirtyOnly,
                   .miniBatch = step.miniBatch,
                   .ofRows = ofRows,
                   .ofAct = ofAct};
}

absl::StatusOr<std::vector<LaneWaits>> stepWaits(const plan::Schedule &schedule, bool isCpu) {
  const auto laneOf = [&](uint32_t step) {
    const Lane lane = schedule.steps[step].lane;
    return laneIndex(isCpu && lane == Lane::Cpu ? Lane::Compute : lane);
  };
  LaneWaits none;
  none.fill(kNone);
  std::vector<LaneWaits> waits(schedule.steps.size(), none);
  for (const plan::Edge &edge : schedule.edges) {
    if (edge.from >= edge.to || edge.to >= schedule.steps.size())
      return absl::InvalidArgumentError(
          absl::StrCat("schedule '", schedule.name, "': edge from step ", edge.from, " to ", edge.to));
    const size_t lane = laneOf(edge.from);
    if (lane == laneOf(edge.to))
      continue;
    uint32_t &last = waits[edge.to][lane];
    last = last == kNone ? edge.from : std::max(last, edge.from);
  }
  std::array<LaneWaits, kGraphLanes> waited; // by each lane's steps so far
  waited.fill(none);
  for (uint32_t i = 0; i < waits.size(); ++i)
    for (size_t lane = 0; lane < kGraphLanes; ++lane) {
      uint32_t &want = waits[i][lane], &last = waited[laneOf(i)][lane];
      if (want == kNone)
        continue;
      if (last != kNone && want <= last)
        want = kNone;
      else
        last = want;
    }
  return waits;
}

} // namespace headrace::core
