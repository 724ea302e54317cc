// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/PlanWriter.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/IterationMeta.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/BlockRuns.h"

namespace headrace::compiler {
namespace {

// The bytes of `needed` that `held` has at the same place: a prefix of it, or none.
uint64_t heldPrefix(const std::vector<plan::Content> &held, const plan::Content &needed) {
  for (const plan::Content &content : held)
    if (content.buffer == needed.buffer && content.bufferOffset == needed.bufferOffset &&
        content.address == needed.address)
      return std::min(content.bytes, needed.bytes);
  return 0;
}

std::vector<plan::Content> sortedByAddress(std::vector<plan::Content> contents) {
  std::sort(contents.begin(), contents.end(),
            [](const plan::Content &a, const plan::Content &b) { return a.address < b.address; });
  return contents;
}

} // namespace

bool isDirty(const plan::State &state) {
  return std::any_of(state.contents.begin(), state.contents.end(), [](const plan::Content &c) { return c.dirty; });
}

bool sameContents(const std::vector<plan::Content> &a, const std::vector<plan::Content> &b) {
  const auto key = [](const plan::Content &c) {
    return std::tie(c.address, c.buffer, c.bufferOffset, c.bytes, c.dirty);
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const plan::Content &x, const plan::Content &y) { return key(x) == key(y); });
}

bool contains(const plan::State &state, const plan::State &needed) {
  if (isDirty(state) || isDirty(needed))
    return state.placement == needed.placement && sameContents(state.contents, needed.contents);
  if (needed.contents.empty())
    return true;
  return state.placement == needed.placement &&
         std::all_of(needed.contents.begin(), needed.contents.end(), [&](const plan::Content &content) {
           return heldPrefix(state.contents, content) == content.bytes;
         });
}

uint32_t planBufferOf(const plan::BufferIndex &index, const algorithms::SlabKey &of, int32_t unit) {
  if (unit >= 0)
    return index.weight(static_cast<size_t>(unit));
  const auto miniBatch = static_cast<uint32_t>(of.miniBatch);
  switch (of.of.kind) {
  case algorithms::MovableKind::Kv:
    return index.kv(of.of.index, miniBatch);
  case algorithms::MovableKind::Act:
    return index.act(of.of.index, miniBatch);
  case algorithms::MovableKind::Residual:
    return index.residual(miniBatch);
  case algorithms::MovableKind::Weight: // a unit
    break;
  }
  return plan::kNone;
}

PlanWriter::PlanWriter(const model::WeightLayout &layout, const Target &target, plan::Plan &plan) : plan_(plan) {
  for (uint32_t unit = 0; unit < layout.units.size(); ++unit)
    if (const model::Unit &u = layout.units[unit]; !u.absent())
      plan.buffers.push_back({u.name, plan::BufferKind::Weight, u.layer, u.bytes, unit});
  for (int32_t layer = 0; layer < plan.model->layers; ++layer)
    for (uint32_t i = 0; i < plan.miniBatches; ++i)
      plan.buffers.push_back(
          {plan::kvName(layer, i, plan.miniBatches), plan::BufferKind::Kv, layer, target.kvBytes, i});
  for (int32_t layer = 0; layer < plan.model->layers && target.actBlocks > 0; ++layer)
    for (uint32_t i = 0; i < plan.miniBatches; ++i)
      plan.buffers.push_back(
          {plan::actName(layer, i, plan.miniBatches), plan::BufferKind::Act, layer, target.actBytes, i});
  const auto ids = [](int64_t count) { return model::alignUp(static_cast<uint64_t>(count) * sizeof(int32_t)); };
  const auto io = [&](const char *name, uint64_t bytes, plan::Io which) {
    plan.buffers.push_back({name, plan::BufferKind::Io, -1, bytes, static_cast<uint32_t>(which)});
  };
  io("meta", target.metaBytes(), plan::Io::Meta);
  io("sampled", plan.miniBatches * ids(target.meta.maxSequences), plan::Io::Sampled);
  io("output", ids(target.mostSampled()), plan::Io::Output);
  io("history", plan.miniBatches * target.historyBytes, plan::Io::History);
  for (uint32_t i = 0; i < plan.miniBatches && target.choice.residency.residualsHaveHomes(); ++i)
    plan.buffers.push_back({plan::residualName(i, plan.miniBatches), plan::BufferKind::Residual, -1,
                            target.residualBytes(plan.model->hidden), i});
  plan.states.emplace_back();
}

uint32_t PlanWriter::stateOf(uint32_t placement, std::vector<plan::Content> contents) {
  if (contents.empty())
    return 0;
  contents = sortedByAddress(std::move(contents));
  for (size_t state = 1; state < plan_.states.size(); ++state)
    if (plan_.states[state].placement == placement && sameContents(plan_.states[state].contents, contents))
      return static_cast<uint32_t>(state);
  plan_.states.push_back({placement, std::move(contents)});
  return static_cast<uint32_t>(plan_.states.size() - 1);
}

uint32_t PlanWriter::addTransition(uint32_t fromState, uint32_t toState) {
  const plan::State &from = plan_.states[fromState], &to = plan_.states[toState];
  plan::Schedule schedule;
  schedule.name =
      toState == 0 ? absl::StrCat("flush ", fromState) : absl::StrCat("transition ", fromState, " to ", toState);
  schedule.placement = toState == 0 ? from.placement : to.placement;
  schedule.iterationClass = plan::IterationClass::Transition;
  schedule.entryState = fromState;
  schedule.exitState = toState;
  std::vector<plan::Content> written; // by step
  for (const plan::Content &content : from.contents)
    if (content.dirty) {
      addCopy(schedule, from.placement, content, /*toDevice=*/false);
      written.push_back(content);
    }
  for (const plan::Content &content : to.contents) {
    const uint64_t held = heldPrefix(from.contents, content);
    if (held == content.bytes)
      continue;
    const plan::Content missing{content.buffer, content.bufferOffset + held, content.bytes - held,
                                content.address + held};
    addCopy(schedule, to.placement, missing);
    // Behind the last that still reads its range, or writes its home.
    const auto step = static_cast<uint32_t>(schedule.steps.size() - 1);
    for (size_t before = written.size(); before-- > 0;) {
      const plan::Content &w = written[before];
      const bool sameHome = w.buffer == missing.buffer && w.bufferOffset < missing.bufferOffset + missing.bytes &&
                            missing.bufferOffset < w.bufferOffset + w.bytes;
      const bool sameRange = w.address < missing.address + missing.bytes && missing.address < w.address + w.bytes;
      if (!sameHome && !sameRange)
        continue;
      schedule.edges.push_back(
          {static_cast<uint32_t>(before), step, sameHome ? plan::EdgeKind::Raw : plan::EdgeKind::War});
      break;
    }
  }
  plan_.schedules.push_back(std::move(schedule));
  return static_cast<uint32_t>(plan_.schedules.size() - 1);
}

uint32_t PlanWriter::addSwitch(uint32_t fromPlacement, uint32_t toPlacement) {
  const plan::Placement &from = plan_.placements[fromPlacement];
  std::vector<plan::Extent> missing;
  for (plan::Extent to : plan_.placements[toPlacement].extents)
    if (to.space == plan::Space::Device) {
      if (to.interleaved) // of the blocks that both have
        to.bytes = std::min(to.bytes, static_cast<uint64_t>(from.kvBlocks) * plan_.kvBlockBytes());
      const plan::Extent *home = homeOf(from, to.buffer, to.interleaved ? to.bytes - 1 : to.bufferOffset);
      if (home == nullptr || home->space != plan::Space::Host)
        continue;
      if (to.interleaved) { // blocks that are on the device in both lie in the same place
        to.address = plan::addressAt(plan_, to, home->bufferOffset);
        to.bytes -= home->bufferOffset;
        to.bufferOffset = home->bufferOffset;
      }
      missing.push_back(to);
    }
  if (missing.empty())
    return plan::kNone;
  std::sort(missing.begin(), missing.end(),
            [](const plan::Extent &a, const plan::Extent &b) { return a.address < b.address; });
  plan::Schedule schedule;
  schedule.name = absl::StrCat("switch ", from.name, " to ", plan_.placements[toPlacement].name);
  schedule.placement = toPlacement;
  schedule.fromPlacement = fromPlacement;
  schedule.iterationClass = plan::IterationClass::Transition;
  for (const plan::Extent &to : missing) {
    addCopy(schedule, fromPlacement, {to.buffer, to.bufferOffset, to.bytes, to.address});
    schedule.operands.back().interleaved = to.interleaved;
  }
  plan_.schedules.push_back(std::move(schedule));
  return static_cast<uint32_t>(plan_.schedules.size() - 1);
}

const plan::Extent *PlanWriter::homeOf(const plan::Placement &placement, uint32_t buffer, uint64_t offset) {
  for (const plan::Extent &e : placement.extents)
    if (e.buffer == buffer && e.bufferOffset <= offset && offset - e.bufferOffset < e.bytes)
      return &e;
  return nullptr;
}

void PlanWriter::addCopy(plan::Schedule &schedule, uint32_t homePlacement, const plan::Content &content,
                         bool toDevice) {
  const plan::Extent &home = *homeOf(plan_.placements[homePlacement], content.buffer, content.bufferOffset);
  plan::Step step;
  step.kind = plan::StepKind::Copy;
  step.lane = toDevice ? plan::Lane::H2D : plan::Lane::D2H;
  step.part = plan::Part::Movement;
  step.layer = plan_.buffers[content.buffer].layer;
  step.resizable = plan_.buffers[content.buffer].kind == plan::BufferKind::Kv;
  step.miniBatch = step.resizable ? static_cast<uint8_t>(plan_.buffers[content.buffer].index) : 0;
  step.firstOperand = static_cast<uint32_t>(schedule.operands.size());
  step.operandCount = 2;
  step.linkBytes = step.deviceBytes = content.bytes;
  plan::Operand host{content.buffer,
                     plan::Space::Host,
                     plan::Access::Read,
                     plan::Arg::Source,
                     content.bufferOffset,
                     content.bytes,
                     home.address + (content.bufferOffset - home.bufferOffset)};
  plan::Operand device{content.buffer,       plan::Space::Device, plan::Access::Write, plan::Arg::Destination,
                       content.bufferOffset, content.bytes,       content.address};
  if (!toDevice) {
    std::swap(host.access, device.access);
    std::swap(host.arg, device.arg);
  }
  schedule.operands.push_back(toDevice ? host : device);
  schedule.operands.push_back(toDevice ? device : host);
  schedule.steps.push_back(step);
}

} // namespace headrace::compiler
