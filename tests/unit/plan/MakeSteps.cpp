// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/PlacementBuilder.h"

#include <algorithm>

#include "kernels/Kernels.h"

namespace headrace::plan::test {

using model::TensorRole;
using model::UnitRole;

// The first of a buffer's extents.
const Extent &PlacementBuilder::home(uint32_t buffer) const {
  return *std::find_if(placement().extents.begin(), placement().extents.end(),
                       [&](const Extent &e) { return e.buffer == buffer; });
}
Operand PlacementBuilder::whole(Arg arg, Access access, uint32_t buffer) const {
  const Extent &e = home(buffer);
  return {buffer, e.space, access, arg, 0, e.bytes, e.address, e.interleaved};
}

// Of the iteration buffer what lies behind the headers and arrays of the mini-batches before.
Operand PlacementBuilder::range(Arg arg, Access access, Io io) const {
  Operand o = whole(arg, access, plan_.ioBuffer(io));
  if (io == Io::Meta) {
    o.bufferOffset = miniBatch_ * kernels::metaFixedBytes(plan_.metaLayout);
    o.bytes -= o.bufferOffset;
  } else {
    o.bytes /= plan_.miniBatches;
    o.bufferOffset = miniBatch_ * o.bytes;
  }
  o.address += o.bufferOffset;
  return o;
}

// The newest buffer for a role; a new one where it is written as a whole.
Operand PlacementBuilder::local(Arg arg, Access access, Role role, bool inPlace) {
  if (role == X && plan_.residualsLeave())
    return residual(arg, access);
  if (access == Access::Write && !inPlace)
    fresh(role);
  const uint32_t newest = current_[miniBatch_][role];
  const Local &l = schedule_->locals[newest];
  return {
      static_cast<uint32_t>(plan_.buffers.size()) + newest, Space::Device, access, arg, 0, l.buffer.bytes, l.address};
}

// Bytes of a unit from one tensor to the end of another, at the unit's home or in its slot.
Operand PlacementBuilder::weight(Arg arg, uint32_t unit, const model::Tensor &first, const model::Tensor &last) const {
  const Extent &e = placement().extents[unit];
  const auto inSlot = slotAddress_.find(unit);
  const uint64_t at = inSlot != slotAddress_.end() ? inSlot->second : e.address;
  const Space space = inSlot != slotAddress_.end() ? Space::Device : e.space;
  return {unit, space, Access::Read, arg, first.offset, last.offset + last.bytes - first.offset, at + first.offset};
}

Operand PlacementBuilder::weight(Arg arg, uint32_t unit, TensorRole role) const {
  const model::Tensor &t = *layout_.units[unit].find(role);
  return weight(arg, unit, t, t);
}

void PlacementBuilder::compute(kernels::Op op, Part part, int64_t layer, std::vector<Operand> operands, bool direct) {
  Step step;
  step.op = op;
  step.part = part;
  step.layer = static_cast<int32_t>(layer);
  step.direct = direct;
  step.flops = 1000;
  step.miniBatch = static_cast<uint8_t>(miniBatch_);
  operands.push_back(range(Arg::Meta, Access::Read, plan::Io::Meta));
  for (const Operand &operand : operands)
    (operand.space == Space::Host ? step.linkBytes : step.deviceBytes) += operand.bytes;
  computes_.push_back({step, std::move(operands)});
}

void PlacementBuilder::norm(Part part, int64_t layer, uint32_t unit, Role from, Role to) {
  const model::Unit &u = layout_.units[unit];
  const model::Tensor *bias = u.find(TensorRole::NormBias);
  const model::Tensor &gain = *u.find(TensorRole::NormWeight);
  compute(kernels::Op::Norm, part, layer,
          {local(Arg::X, Access::Read, from), weight(Arg::NormWeights, unit, gain, bias ? *bias : gain),
           local(Arg::Y, Access::Write, to)});
}

void PlacementBuilder::linear(Part part, int64_t layer, uint32_t unit, Role from, Role to, bool residual) {
  std::vector<Operand> operands = {local(Arg::X, Access::Read, from), local(Arg::Y, Access::Write, to, residual),
                                   local(Arg::Workspace, Access::Write, Workspace)};
  const model::Unit &u = layout_.units[unit];
  const bool tiedHead = u.role == UnitRole::Head && plan_.model->tiedEmbeddings;
  operands.push_back(tiedHead ? weight(Arg::Weight, 0, TensorRole::TokenTable)
                              : weight(Arg::Weight, unit, TensorRole::Matrix));
  if (u.find(TensorRole::Bias))
    operands.push_back(weight(Arg::Bias, unit, TensorRole::Bias));
  if (residual)
    operands.push_back(local(Arg::Residual, Access::Read, to));
  compute(kernels::Op::Linear, part, layer, std::move(operands));
}

// Blocks [from, to) of a cache, in the ring or in the slab.
Operand PlacementBuilder::blocks(Arg arg, Access access, int64_t cache, int64_t from, int64_t to) const {
  const uint32_t buffer = bufferOf(cache);
  const uint64_t offset = static_cast<uint64_t>(from) * plan_.kvBlockBytes();
  const uint64_t bytes = static_cast<uint64_t>(to - from) * plan_.kvBlockBytes();
  const uint64_t byte0 = arg == Arg::KvHome ? hostAddress(buffer) : slotAddress_.at(buffer);
  return {buffer, arg == Arg::KvHome ? Space::Host : Space::Device, access, arg, offset, bytes, byte0 + offset};
}
bool PlacementBuilder::evicts(int64_t layer) const {
  if (inUse() == resident())
    return false;
  if (carries(layer) && leavesDirty(layer)) // no row reaches a home that is behind
    return true;
  return limits_->keepHome != KeepHome::Mirror && !(limits_->mirrorsEven && layer % 2 == 0);
}
void PlacementBuilder::append(int64_t layer) {
  std::vector<Operand> operands = {local(Arg::X, Access::ReadWrite, Qkv)};
  if (resident() > 0)
    operands.push_back(whole(Arg::Kv, Access::ReadWrite, plan_.kvBuffer(layer, miniBatch_)));
  if (plan_.model->qkNorm)
    operands.push_back(weight(Arg::NormWeights, unitOf(layer, UnitRole::Qkv), TensorRole::HeadNorms));
  if (homes_ != nullptr && inUse() > resident())
    operands.push_back(blocks(Arg::KvTail, Access::ReadWrite, cacheOf(layer), resident(), inUse()));
  if (plan_.actBlocks > 0)
    operands.push_back(local(Arg::KvRebuilt, Access::ReadWrite, Rebuilt));
  const int64_t homeEnd = evicts(cacheOf(layer)) ? resident() : inUse();
  const bool direct = homes_ != nullptr && homes_->mirrored && homeEnd > homes_->mirroredFrom;
  if (direct)
    operands.push_back(blocks(Arg::KvHome, Access::ReadWrite, cacheOf(layer), homes_->mirroredFrom, homeEnd));
  compute(kernels::Op::RopeAppend, Part::Attention, layer, std::move(operands), direct);
  if (direct) // the keys and values of new tokens
    computes_.back().step.linkBytes = static_cast<uint64_t>(limits_->tokens) * keysAndValuesBytes(plan_);
}
void PlacementBuilder::attend(int64_t layer) {
  std::vector<Operand> operands = {local(Arg::X, Access::Read, Qkv), local(Arg::Y, Access::Write, Attn),
                                   local(Arg::Workspace, Access::Write, Workspace)};
  if (resident() > 0)
    operands.insert(operands.begin() + 1, whole(Arg::Kv, Access::Read, plan_.kvBuffer(layer, miniBatch_)));
  if (homes_ != nullptr && inUse() > resident())
    operands.push_back(blocks(Arg::KvTail, Access::Read, cacheOf(layer), resident(), inUse()));
  if (plan_.actBlocks > 0)
    operands.push_back(local(Arg::KvRebuilt, Access::Read, Rebuilt));
  compute(kernels::Op::Attention, Part::Attention, layer, std::move(operands));
}

void PlacementBuilder::addCompute() {
  const auto ofEach = [&](auto part) {
    for (miniBatch_ = 0; miniBatch_ < plan_.miniBatches; ++miniBatch_)
      part();
    miniBatch_ = 0;
  };
  const bool leave = plan_.residualsLeave();
  const int64_t layers = plan_.model->layers;
  if (onCpu())
    copyMetaDown();
  if (!leave)
    ofEach([&] { addEmbed(); });
  for (int64_t layer = 0; layer < layers; ++layer)
    ofEach([&] {
      visit_ = static_cast<uint32_t>(cacheOf(layer));
      if (layer == 0 && plan_.receives() && !plan_.sends())
        keepIds();
      const auto begin = static_cast<int>(computes_.size());
      if (leave && layer == 0 && !plan_.receives())
        addEmbed();
      addLayer(layer);
      if (!leave)
        return;
      visits_[visit_].begin = begin;
      visits_[visit_].last = static_cast<int>(computes_.size()) - 1;
      if (layer + 1 == layers && !plan_.sends())
        addHead();
    });
  if (!leave)
    ofEach([&] { addHead(); });
  Step publish;
  publish.kind = StepKind::Publish;
  publish.part = Part::Head;
  computes_.push_back({publish, {whole(Arg::Output, Access::Read, plan_.ioBuffer(plan::Io::Output))}});
  if (plan_.sends())
    ofEach(
        [&] { computes_.back().operands.push_back(whole(Arg::Residual, Access::Read, residualBuffer(miniBatch_))); });
}

void PlacementBuilder::addEmbed() {
  std::vector<Operand> embed = {
      weight(Arg::Table, 0, TensorRole::TokenTable), range(Arg::Sampled, Access::Read, plan::Io::Sampled),
      range(Arg::History, Access::ReadWrite, plan::Io::History), local(Arg::X, Access::Write, X)};
  if (plan_.model->learnedPositions)
    embed.push_back(weight(Arg::Positions, 0, TensorRole::PositionTable));
  compute(kernels::Op::Embed, Part::Embedding, -1, embed, options_.offloadEmbedding);
}

void PlacementBuilder::keepIds() {
  compute(kernels::Op::KeepIds, Part::Head, -1,
          {range(Arg::Sampled, Access::Read, plan::Io::Sampled),
           range(Arg::History, Access::ReadWrite, plan::Io::History)});
}

void PlacementBuilder::addLayer(int64_t layer) {
  const auto unit = [&](UnitRole role) { return unitOf(layer, role); };
  const bool acts = plan_.actBlocks > 0;
  layer_ = layer;
  if (acts && acts_.rebuildsFirst)
    rebuild(layer);
  norm(Part::Attention, layer, unit(UnitRole::Qkv), X, H);
  if (acts && !acts_.keepsLate)
    keepRows(layer);
  linear(Part::Attention, layer, unit(UnitRole::Qkv), H, Qkv);
  if (acts && !acts_.rebuildsFirst)
    rebuild(layer);
  if (!onCpu())
    append(layer);
  if (acts && acts_.keepsLate)
    keepRows(layer);
  onCpu() ? attendOnCpu(layer) : attend(layer);
  linear(Part::Attention, layer, unit(UnitRole::Out), Attn, X, true);
  norm(Part::Mlp, layer, unit(UnitRole::Up), X, H);
  linear(Part::Mlp, layer, unit(UnitRole::Up), H, Up);
  if (plan_.model->gated())
    compute(kernels::Op::Activate, Part::Mlp, layer,
            {local(Arg::X, Access::Read, Up), local(Arg::Y, Access::Write, Act)});
  linear(Part::Mlp, layer, unit(UnitRole::Down), plan_.model->gated() ? Act : Up, X, true);
}

void PlacementBuilder::addHead() {
  const auto head = static_cast<uint32_t>(layout_.headUnit());
  compute(kernels::Op::GatherRows, Part::Head, -1,
          {local(Arg::X, Access::Read, X), local(Arg::Y, Access::Write, Rows)});
  norm(Part::Head, -1, head, Rows, RowsNormed);
  linear(Part::Head, -1, head, RowsNormed, Logits);
  compute(kernels::Op::Sample, Part::Head, -1,
          {local(Arg::X, Access::Read, Logits), range(Arg::History, Access::Read, plan::Io::History),
           range(Arg::Sampled, Access::ReadWrite, plan::Io::Sampled),
           whole(Arg::Output, Access::Write, plan_.ioBuffer(plan::Io::Output)),
           local(Arg::Workspace, Access::Write, Workspace)});
}

} // namespace headrace::plan::test
