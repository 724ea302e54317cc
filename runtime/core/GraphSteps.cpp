// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/GraphSteps.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::core {
namespace {

using plan::kNone;
using plan::Lane;
using plan::Operand;
using plan::Space;
using plan::StepKind;

absl::Status checkStep(const GraphSource &source, uint32_t index, std::string_view device) {
  const plan::Schedule &schedule = *source.schedule;
  const plan::Step &step = schedule.steps[index];
  const auto lane = [&] { return absl::StrCat("lane '", plan::laneName(step.lane), "'"); };
  if (laneIndex(step.lane) >= kGraphLanes)
    return refuseStep(schedule, index, absl::StrCat(lane(), ": ", std::string(device), " has compute, h2d and d2h"));
  if (step.firstOperand > schedule.operands.size() || step.operandCount > schedule.operands.size() - step.firstOperand)
    return refuseStep(schedule, index, "its operands are outside the schedule's list");
  if (step.kind == StepKind::Copy)
    return absl::OkStatus();
  if (step.lane != Lane::Compute)
    return refuseStep(schedule, index,
                      absl::StrCat(step.kind == StepKind::Publish ? "publish" : "compute", " in ", lane()));
  if (source.variant == nullptr)
    return refuseStep(schedule, index, "a transition has copies only");
  return absl::OkStatus();
}

absl::StatusOr<std::byte *> sideOf(const plan::Schedule &schedule, uint32_t step, const Operand &operand,
                                   const GraphSpaces &spaces) {
  const bool host = operand.space == Space::Host;
  const uint64_t limit = host ? spaces.hostBytes : spaces.deviceBytes;
  if (operand.bytes > limit || operand.address > limit - operand.bytes)
    return refuseStep(schedule, step,
                      absl::StrCat("bytes [", operand.address, ", +", operand.bytes, ") are outside the ",
                                   host ? "host slab" : "arena", " of ", limit));
  return (host ? spaces.bases.host : spaces.bases.device) + operand.address;
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
    source.bucket = {variant.newTokens, variant.sequences};
  }
  return source;
}

absl::Status refuseStep(const plan::Schedule &schedule, uint32_t step, std::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat("schedule '", schedule.name, "', step ", step, ": ", std::string(message)));
}

absl::Status checkSteps(const GraphSource &source, std::string_view device) {
  const plan::Schedule &schedule = *source.schedule;
  int publishes = 0;
  for (uint32_t i = 0; i < schedule.steps.size(); ++i) {
    RETURN_IF_ERROR(checkStep(source, i, device));
    publishes += schedule.steps[i].kind == StepKind::Publish;
  }
  // An iteration without its tokens would be waited for without end, a transition has none.
  if (const int expected = source.variant == nullptr ? 0 : 1; publishes != expected)
    return absl::InvalidArgumentError(
        absl::StrCat("schedule '", schedule.name, "': ", publishes, " publish steps, expected ", expected));
  return absl::OkStatus();
}

absl::StatusOr<CopySides> copySides(const plan::Schedule &schedule, uint32_t index, const GraphSpaces &spaces) {
  const plan::Step &step = schedule.steps[index];
  if (step.operandCount != 2)
    return refuseStep(schedule, index, absl::StrCat("a copy has 2 operands, this one ", step.operandCount));
  const Operand &source = schedule.operands[step.firstOperand];
  const Operand &destination = schedule.operands[step.firstOperand + 1];
  const bool toDevice = step.lane == Lane::H2D;
  if (step.lane == Lane::Compute || source.space != (toDevice ? Space::Host : Space::Device) ||
      destination.space != (toDevice ? Space::Device : Space::Host))
    return refuseStep(
        schedule, index,
        absl::StrCat("a copy in lane '", plan::laneName(step.lane), "' whose sides are not those of its direction"));
  if (source.bytes != destination.bytes)
    return refuseStep(schedule, index, absl::StrCat("a copy of ", source.bytes, " bytes to ", destination.bytes));
  ASSIGN_OR_RETURN(from, sideOf(schedule, index, source, spaces));
  ASSIGN_OR_RETURN(to, sideOf(schedule, index, destination, spaces));
  return CopySides{.toDevice = toDevice, .destination = to, .source = from, .bytes = source.bytes};
}

absl::StatusOr<std::vector<LaneWaits>> stepWaits(const plan::Schedule &schedule) {
  LaneWaits none;
  none.fill(kNone);
  std::vector<LaneWaits> waits(schedule.steps.size(), none);
  for (const plan::Edge &edge : schedule.edges) {
    if (edge.from >= edge.to || edge.to >= schedule.steps.size())
      return absl::InvalidArgumentError(
          absl::StrCat("schedule '", schedule.name, "': edge from step ", edge.from, " to ", edge.to));
    const size_t lane = laneIndex(schedule.steps[edge.from].lane);
    if (lane == laneIndex(schedule.steps[edge.to].lane))
      continue;
    uint32_t &last = waits[edge.to][lane];
    last = last == kNone ? edge.from : std::max(last, edge.from);
  }
  std::array<LaneWaits, kGraphLanes> waited; // by each lane's steps so far
  waited.fill(none);
  for (uint32_t i = 0; i < waits.size(); ++i)
    for (size_t lane = 0; lane < kGraphLanes; ++lane) {
      uint32_t &want = waits[i][lane], &last = waited[laneIndex(schedule.steps[i].lane)][lane];
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
