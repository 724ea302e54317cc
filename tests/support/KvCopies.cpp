// SPDX-License-Identifier: Apache-2.0
#include "tests/support/KvCopies.h"

#include <cmath>
#include <utility>

#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"

namespace headrace::core {
namespace {

using plan::Operand;

// The operands of layer l's copy, source first.
std::pair<Operand, Operand> operandsOf(const plan::Plan &plan, const KvCopies &copies, int64_t layer) {
  const uint64_t block = plan.kvBlockBytes();
  const auto l = static_cast<size_t>(layer);
  Operand source{.buffer = plan.kvBuffer(layer),
                 .space = plan::Space::Host,
                 .arg = plan::Arg::Source,
                 .bufferOffset = static_cast<uint64_t>(copies.firstBlock) * block,
                 .bytes = static_cast<uint64_t>(copies.blocks) * block,
                 .address = copies.host[l]};
  Operand destination = source;
  destination.space = plan::Space::Device;
  destination.access = plan::Access::Write;
  destination.arg = plan::Arg::Destination;
  destination.address = copies.device[l];
  destination.interleaved = copies.interleaved;
  return {source, destination};
}

plan::Step copyStep(plan::Lane lane, int64_t layer, uint64_t bytes) {
  plan::Step step;
  step.kind = plan::StepKind::Copy;
  step.lane = lane;
  step.part = plan::Part::Movement;
  step.layer = static_cast<int32_t>(layer);
  step.operandCount = 2;
  step.linkBytes = step.deviceBytes = bytes;
  return step;
}

// Puts the copies back behind a schedule's steps, of which the first are those that bring.
void append(const plan::Plan &plan, const KvCopies &copies, plan::Schedule &schedule) {
  for (int64_t layer = 0; layer < plan.model->layers; ++layer) {
    auto [destination, source] = operandsOf(plan, copies, layer);
    destination.address = copies.backHost[static_cast<size_t>(layer)];
    std::swap(source.access, destination.access);
    std::swap(source.arg, destination.arg);
    plan::Step step = copyStep(plan::Lane::D2H, layer, source.bytes);
    step.resizable = copies.back != CopiedBack::All;
    step.dirtyOnly = copies.back == CopiedBack::Written && schedule.iterationClass != plan::IterationClass::Transition;
    step.firstOperand = static_cast<uint32_t>(schedule.operands.size());
    schedule.operands.push_back(source);
    schedule.operands.push_back(destination);
    schedule.edges.push_back(
        {static_cast<uint32_t>(layer), static_cast<uint32_t>(schedule.steps.size()), plan::EdgeKind::Raw});
    schedule.steps.push_back(step);
  }
}

// Puts the copies before a schedule's steps.
void prepend(const plan::Plan &plan, const KvCopies &copies, plan::Schedule &schedule) {
  const auto count = static_cast<uint32_t>(plan.model->layers);
  std::vector<plan::Step> steps;
  for (int64_t layer = 0; layer < plan.model->layers; ++layer) {
    const auto [source, destination] = operandsOf(plan, copies, layer);
    plan::Step step = copyStep(plan::Lane::H2D, layer, source.bytes);
    step.resizable = true;
    step.firstOperand = static_cast<uint32_t>(schedule.operands.size());
    schedule.operands.push_back(source);
    schedule.operands.push_back(destination);
    steps.push_back(step);
  }
  schedule.steps.insert(schedule.steps.begin(), steps.begin(), steps.end());
  for (plan::Edge &edge : schedule.edges) {
    edge.from += count;
    edge.to += count;
  }
}

void addDurations(const plan::Plan &plan, const KvCopies &copies, std::vector<uint64_t> &durationsNs) {
  const uint64_t ns = static_cast<uint64_t>(std::llround(plan.hardware.copyLatency * 1e9)) +
                      static_cast<uint64_t>(copies.blocks) * plan.kvBlockBytes();
  durationsNs.insert(durationsNs.begin(), static_cast<size_t>(plan.model->layers), ns);
  if (copies.back != CopiedBack::Nothing)
    durationsNs.insert(durationsNs.end(), static_cast<size_t>(plan.model->layers), ns);
}

// Gives the copies memory behind what the plan has.
void place(plan::Plan &plan, KvCopies &copies) {
  const uint64_t block = plan.kvBlockBytes(), bytes = static_cast<uint64_t>(copies.blocks) * block;
  const uint64_t region = plan.arenaBytes; // of all layers' interleaved blocks
  plan::Placement &placement = plan.placements[0];
  for (int64_t layer = 0; layer < plan.model->layers; ++layer) {
    copies.host.push_back(plan.hostBytes);
    plan.hostBytes += model::alignUp(bytes);
    if (copies.back != CopiedBack::Nothing) {
      copies.backHost.push_back(plan.hostBytes);
      plan.hostBytes += model::alignUp(bytes);
    }
    copies.device.push_back(copies.interleaved ? region + static_cast<uint64_t>(layer) * block : plan.arenaBytes);
    plan.arenaBytes += model::alignUp(bytes);
    if (copies.interleaved)
      placement.extents.push_back({.buffer = plan.kvBuffer(layer),
                                   .bufferOffset = static_cast<uint64_t>(copies.firstBlock) * block,
                                   .bytes = bytes,
                                   .address = copies.device.back(),
                                   .interleaved = true});
    else
      placement.slots.push_back({copies.device.back(), bytes});
  }
  plan.deviceMemory = plan.arenaBytes;
}

// The schedule's exit state with what the copies have brought.
uint32_t exitState(plan::Plan &plan, const KvCopies &copies, const plan::Schedule &schedule) {
  plan::State state = plan.states[schedule.exitState];
  for (int64_t layer = 0; layer < plan.model->layers && !copies.interleaved; ++layer) {
    const Operand destination = operandsOf(plan, copies, layer).second;
    state.contents.push_back(
        {destination.buffer, destination.bufferOffset, destination.bytes, destination.address}); // behind all others
  }
  plan.states.push_back(state);
  return static_cast<uint32_t>(plan.states.size() - 1);
}

} // namespace

void addKvCopies(plan::Plan &plan, KvCopies &copies) {
  place(plan, copies);
  plan::Schedule alone;
  alone.name = "kv";
  alone.iterationClass = plan::IterationClass::Transition;
  plan.schedules.push_back(alone);
  plan.transitions.push_back({.schedule = static_cast<uint32_t>(plan.schedules.size() - 1)});
  for (plan::Schedule &schedule : plan.schedules) {
    prepend(plan, copies, schedule);
    if (copies.back != CopiedBack::Nothing)
      append(plan, copies, schedule);
    schedule.exitState = exitState(plan, copies, schedule);
  }
  for (plan::Variant &variant : plan.variants)
    addDurations(plan, copies, variant.durationsNs);
  for (plan::Transition &transition : plan.transitions)
    addDurations(plan, copies, transition.durationsNs);
}

} // namespace headrace::core
