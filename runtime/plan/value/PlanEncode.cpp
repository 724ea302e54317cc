// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "flatbuffers/flatbuffers.h"
#include "plan_generated.h"
#include "runtime/job/InputsText.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/PlanBytes.h"

namespace headrace::plan {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
using flatbuffers::Vector;

template <typename E> constexpr uint8_t raw(E e) { return static_cast<uint8_t>(e); }

// A vector of tables, each made by `one`.
template <typename Table, typename From, typename One>
Offset<Vector<Offset<Table>>> tables(FlatBufferBuilder &fbb, const std::vector<From> &from, One one) {
  std::vector<Offset<Table>> offsets;
  offsets.reserve(from.size());
  for (const From &value : from)
    offsets.push_back(one(value));
  return fbb.CreateVector(offsets);
}

// A vector of fixed structs, each made by `one`.
template <typename Struct, typename From, typename One>
Offset<Vector<const Struct *>> structs(FlatBufferBuilder &fbb, const std::vector<From> &from, One one) {
  return fbb.CreateVectorOfStructs<Struct>(from.size(), [&](size_t i, Struct *out) { *out = one(from[i]); });
}

Offset<fb::Buffer> encodeBuffer(FlatBufferBuilder &fbb, const Buffer &b, uint64_t address = kNowhere,
                                uint64_t hostAddress = kNowhere) {
  return fb::CreateBuffer(fbb, fbb.CreateString(b.name), raw(b.kind), b.layer, b.bytes, address, b.index, hostAddress);
}

Offset<fb::Placement> encodePlacement(FlatBufferBuilder &fbb, const Placement &p) {
  const auto name = fbb.CreateString(p.name);
  const auto extents = structs<fb::Extent>(fbb, p.extents, [](const Extent &e) {
    return fb::Extent(e.bufferOffset, e.bytes, e.address, e.buffer, raw(e.space), e.direct, e.interleaved);
  });
  const auto slots =
      structs<fb::Slot>(fbb, p.slots, [](const Slot &slot) { return fb::Slot(slot.address, slot.bytes); });
  return fb::CreatePlacement(fbb, name, p.interval, raw(p.startRule), extents, slots, p.kvBlocks, p.startItems);
}

Offset<fb::State> encodeState(FlatBufferBuilder &fbb, const State &s) {
  const auto contents = structs<fb::Content>(fbb, s.contents, [](const Content &c) {
    return fb::Content(c.bufferOffset, c.bytes, c.address, c.buffer, c.dirty);
  });
  return fb::CreateState(fbb, s.placement, contents);
}

Offset<fb::Schedule> encodeSchedule(FlatBufferBuilder &fbb, const Schedule &s) {
  const auto name = fbb.CreateString(s.name);
  const auto steps = structs<fb::Step>(fbb, s.steps, [](const Step &x) {
    return fb::Step(x.flops, x.deviceBytes, x.linkBytes, x.firstOperand, x.operandCount, x.layer, raw(x.kind),
                    raw(x.lane), raw(x.op), raw(x.part), x.miniBatch, x.direct, x.resizable, x.dirtyOnly);
  });
  const auto operands = structs<fb::Operand>(fbb, s.operands, [](const Operand &o) {
    return fb::Operand(o.bufferOffset, o.bytes, o.address, o.buffer, raw(o.space), raw(o.access), raw(o.arg),
                       o.interleaved);
  });
  const auto edges = structs<fb::Edge>(fbb, s.edges, [](const Edge &e) { return fb::Edge(e.from, e.to, raw(e.kind)); });
  const auto locals = tables<fb::Buffer>(fbb, s.locals, [&](const Local &local) {
    return encodeBuffer(fbb, local.buffer, local.address, local.hostAddress);
  });
  return fb::CreateSchedule(fbb, name, s.placement, raw(s.iterationClass), s.maxTokens, s.maxSequences, s.maxContext,
                            s.entryState, s.exitState, steps, operands, edges, locals, s.fromPlacement, s.kvBlocks,
                            s.phase, s.period);
}

} // namespace

std::string inputsOf(const Plan &plan) {
  model::Goal goal = plan.goal;
  goal.deviceMemory = plan.deviceMemory;
  goal.miniBatches = plan.miniBatches;
  goal.autoMiniBatches = goal.autoKvTokens = false;
  goal.blockTokens = plan.blockTokens;
  goal.kvEncoding = plan.kvEncoding;
  model::Policy policy = plan.policy;
  if (policy.actRatio || plan.actRatio != model::ActRatio())
    policy.actRatio = plan.actRatio;
  return model::inputsText(plan.model, plan.hardware, goal, policy);
}

uint64_t encodedBytesBound(const Plan &plan) {
  // A table's fields, its offset and its share of vtables and padding take less than this.
  constexpr uint64_t kTable = 512;
  uint64_t bytes = 8 * kTable + plan.compilerVersion.size() + inputsOf(plan).size() + plan.modelHash.size() +
                   plan.modelPath.size() + plan.reason.size() + plan.limitingResource.size() + plan.goal.record.size() +
                   plan.choices.size() * sizeof(fb::BucketChoice) + plan.weightHashes.size() * sizeof(uint64_t);
  for (const Buffer &buffer : plan.buffers)
    bytes += kTable + buffer.name.size();
  for (const Placement &p : plan.placements)
    bytes += kTable + p.name.size() + p.extents.size() * sizeof(fb::Extent) + p.slots.size() * sizeof(fb::Slot);
  for (const State &state : plan.states)
    bytes += kTable + state.contents.size() * sizeof(fb::Content);
  for (const Schedule &s : plan.schedules) {
    bytes += kTable + s.name.size() + s.steps.size() * sizeof(fb::Step) + s.operands.size() * sizeof(fb::Operand) +
             s.edges.size() * sizeof(fb::Edge);
    for (const Local &local : s.locals)
      bytes += kTable + local.buffer.name.size();
  }
  for (const Variant &variant : plan.variants)
    bytes += kTable + variant.durationsNs.size() * sizeof(uint64_t);
  for (const Transition &transition : plan.transitions)
    bytes += kTable + transition.durationsNs.size() * sizeof(uint64_t);
  return bytes;
}

std::string encode(const Plan &plan) {
  FlatBufferBuilder fbb(64 << 10);
  const auto compilerVersion = fbb.CreateString(plan.compilerVersion);
  const auto inputs = fbb.CreateString(inputsOf(plan));
  const auto modelHash = fbb.CreateString(plan.modelHash);
  const auto modelPath = fbb.CreateString(plan.modelPath);
  const Offset<flatbuffers::String> record = plan.goal.record.empty() ? 0 : fbb.CreateString(plan.goal.record);
  const auto reason = fbb.CreateString(plan.reason);
  const auto limitingResource = fbb.CreateString(plan.limitingResource);
  const auto buffers =
      tables<fb::Buffer>(fbb, plan.buffers, [&](const Buffer &buffer) { return encodeBuffer(fbb, buffer); });
  const auto placements =
      tables<fb::Placement>(fbb, plan.placements, [&](const Placement &p) { return encodePlacement(fbb, p); });
  const auto states = tables<fb::State>(fbb, plan.states, [&](const State &state) { return encodeState(fbb, state); });
  const auto schedules =
      tables<fb::Schedule>(fbb, plan.schedules, [&](const Schedule &s) { return encodeSchedule(fbb, s); });
  const auto variants = tables<fb::Variant>(fbb, plan.variants, [&](const Variant &v) {
    return fb::CreateVariant(fbb, v.newTokens, v.sequences, v.context, v.placement, v.schedule,
                             fbb.CreateVector(v.durationsNs), v.predictedNs, v.computeAloneNs, v.linkAloneNs);
  });
  const auto transitions = tables<fb::Transition>(fbb, plan.transitions, [&](const Transition &t) {
    return fb::CreateTransition(fbb, t.fromState, t.toState, t.schedule, fbb.CreateVector(t.durationsNs),
                                t.predictedNs);
  });
  const auto choices = structs<fb::BucketChoice>(fbb, plan.choices, [](const BucketChoice &c) {
    return fb::BucketChoice(c.sloNs, c.residentNs, c.layerComputeNs, c.layerTransferNs, c.variant, 0);
  });
  Offset<Vector<uint64_t>> weightHashes; // absent where there are none
  if (!plan.weightHashes.empty())
    weightHashes = fbb.CreateVector(plan.weightHashes);
  const kernels::MetaLayout &meta = plan.metaLayout;
  fbb.Finish(fb::CreatePlan(fbb, plan.version, compilerVersion, inputs, modelHash, modelPath, record, reason,
                            limitingResource, raw(plan.activationDtype), plan.kvBlocks, meta.maxTokens,
                            meta.maxSequences, meta.maxBlocksPerSequence, plan.maxContext, plan.arenaBytes,
                            plan.hostBytes, buffers, placements, states, schedules, variants, transitions, choices,
                            plan.slowestPermille, weightHashes, plan.actBlocks, plan.contextBlocks, plan.metaOnHost),
             kFileIdentifier);
  return std::string(reinterpret_cast<const char *>(fbb.GetBufferPointer()), fbb.GetSize());
}

} // namespace headrace::plan
