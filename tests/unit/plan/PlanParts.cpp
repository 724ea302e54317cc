// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/PlanParts.h"

#include <algorithm>
#include <map>

namespace headrace::plan::test {

uint64_t hostAddress(const Plan &plan, uint32_t unit) {
  uint64_t at = 0;
  for (uint32_t i = 0; i < unit; ++i)
    at += plan.buffers[i].bytes;
  return at;
}

uint32_t actBuffer(const Plan &plan, int64_t layer, uint32_t miniBatch) {
  for (uint32_t i = 0; i < plan.buffers.size(); ++i)
    if (const Buffer &b = plan.buffers[i]; b.kind == BufferKind::Act && b.layer == layer && b.index == miniBatch)
      return i;
  return kNone;
}

void addStep(Schedule &s, Step step, const std::vector<Operand> &operands) {
  step.firstOperand = static_cast<uint32_t>(s.operands.size());
  step.operandCount = static_cast<uint32_t>(operands.size());
  s.steps.push_back(step);
  s.operands.insert(s.operands.end(), operands.begin(), operands.end());
}
void addCopy(const Plan &plan, Schedule &s, const PlannedCopy &c) {
  Step step;
  step.kind = StepKind::Copy;
  step.lane = Lane::H2D;
  step.part = Part::Movement;
  step.layer = plan.buffers[c.unit].layer;
  const BufferKind kind = plan.buffers[c.unit].kind;
  if (kind == BufferKind::Kv || kind == BufferKind::Residual || kind == BufferKind::Act)
    step.miniBatch = static_cast<uint8_t>(plan.buffers[c.unit].index);
  step.linkBytes = c.bytes;
  step.resizable = c.resizable;
  step.dirtyOnly = c.dirtyOnly;
  Operand from = {c.unit, Space::Host, Access::Read, Arg::Source, c.offset, c.bytes, c.hostAddress};
  Operand to = {c.unit, Space::Device, Access::Write, Arg::Destination, c.offset, c.bytes, c.address, c.interleaved};
  if (c.toHost) {
    step.lane = Lane::D2H;
    std::swap(from.space, to.space);
    std::swap(from.address, to.address);
  }
  addStep(s, step, {from, to});
}

bool isDirty(const State &state) {
  return std::any_of(state.contents.begin(), state.contents.end(), [](const Content &c) { return c.dirty; });
}

std::tuple<uint64_t, uint64_t, uint64_t> times(const Schedule &s, const std::vector<uint64_t> &durations) {
  std::map<Lane, uint64_t> free, sum;
  std::vector<uint64_t> end(s.steps.size());
  uint64_t last = 0;
  size_t edge = 0;
  for (uint32_t i = 0; i < s.steps.size(); ++i) {
    uint64_t start = free[s.steps[i].lane];
    for (; edge < s.edges.size() && s.edges[edge].to == i; ++edge)
      start = std::max(start, end[s.edges[edge].from]);
    end[i] = free[s.steps[i].lane] = start + durations[i];
    sum[s.steps[i].lane] += durations[i];
    last = std::max(last, end[i]);
  }
  return {last, sum[Lane::Compute], std::max(sum[Lane::H2D], sum[Lane::D2H])};
}

void sortVariants(Plan &plan) {
  const auto key = [&](const Variant &v) {
    const Schedule &s = plan.schedules[v.schedule];
    const int64_t blocks = s.kvBlocks > 0 ? s.kvBlocks : plan.placements[s.placement].kvBlocks;
    return std::tuple(v.placement, v.newTokens, v.sequences, v.context, blocks, s.phase);
  };
  std::stable_sort(plan.variants.begin(), plan.variants.end(),
                   [&](const Variant &a, const Variant &b) { return key(a) < key(b); });
}

void addTransition(Plan &plan, Schedule s, uint32_t from, uint32_t to) {
  Transition t;
  t.fromState = from;
  t.toState = to;
  t.schedule = static_cast<uint32_t>(plan.schedules.size());
  for (const Step &step : s.steps)
    t.durationsNs.push_back(100 + step.linkBytes / 8);
  t.predictedNs = std::get<0>(times(s, t.durationsNs));
  plan.schedules.push_back(std::move(s));
  plan.transitions.push_back(std::move(t));
}

// Copies to the homes that `to` has on the device and `from` has not, of caches the blocks.
void addSwitch(Plan &plan, uint32_t from, uint32_t to) {
  Schedule s;
  s.name = plan.placements[from].name + " to " + plan.placements[to].name;
  s.placement = to;
  s.fromPlacement = from;
  s.iterationClass = IterationClass::Transition;
  for (uint32_t unit = 0; unit < plan.kvBuffer(0); ++unit) {
    const Extent &home = plan.placements[to].extents[unit], &source = plan.placements[from].extents[unit];
    if (home.space == Space::Device && source.space == Space::Host)
      addCopy(plan, s, {unit, 0, home.bytes, home.address, hostAddress(plan, unit)});
  }
  for (const Extent &home : plan.placements[to].extents)
    for (const Extent &source : plan.placements[from].extents) {
      if (!home.interleaved || source.buffer != home.buffer || source.space != Space::Host ||
          home.bytes <= source.bufferOffset)
        continue;
      const uint64_t first = source.bufferOffset / plan.kvBlockBytes();
      PlannedCopy copy{home.buffer, source.bufferOffset, std::min(home.bytes - source.bufferOffset, source.bytes),
                       home.address + first * plan.kvStride(), source.address};
      copy.resizable = copy.interleaved = true;
      addCopy(plan, s, copy);
    }
  if (!s.steps.empty())
    addTransition(plan, std::move(s), 0, 0);
}

} // namespace headrace::plan::test
