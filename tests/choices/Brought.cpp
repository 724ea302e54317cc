// SPDX-License-Identifier: Apache-2.0
#include "tests/choices/Brought.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/BlockRuns.h"

namespace headrace::choices {

void Brought::drop(uint64_t begin, uint64_t end) {
  auto at = held_.upper_bound(begin);
  if (at != held_.begin())
    --at;
  while (at != held_.end() && at->first < end) {
    const uint64_t address = at->first;
    const Held held = at->second;
    if (held.end <= begin) {
      ++at;
      continue;
    }
    at = held_.erase(at);
    if (address < begin)
      held_[address] = {begin, held.buffer, held.offset};
    if (held.end > end)
      held_[end] = {held.end, held.buffer, held.offset + end - address};
  }
}

void Brought::hold(uint64_t address, uint64_t bytes, uint32_t buffer, uint64_t offset) {
  drop(address, address + bytes);
  held_[address] = {address + bytes, buffer, offset};
}

bool Brought::holds(uint64_t address, uint64_t bytes, uint32_t buffer, uint64_t offset) const {
  const uint64_t end = address + bytes;
  for (uint64_t at = address; at < end;) {
    auto part = held_.upper_bound(at);
    if (part == held_.begin())
      return false;
    --part;
    if (part->second.end <= at || part->second.buffer != buffer ||
        part->second.offset + (at - part->first) != offset + (at - address))
      return false;
    at = part->second.end;
  }
  return true;
}

bool Brought::isHome(const plan::Schedule &schedule, const plan::Operand &operand) const {
  for (const plan::Extent &extent : plan_.placements[schedule.placement].extents)
    if (extent.buffer == operand.buffer && operand.bufferOffset >= extent.bufferOffset &&
        operand.bufferOffset < extent.bufferOffset + extent.bytes)
      return extent.space == plan::Space::Device;
  return true;
}

// Of blocks those of the sequences' contexts.
void Brought::forEachUsed(const plan::Operand &operand, const kernels::IterationMeta &meta,
                          const std::function<void(uint64_t, uint64_t)> &f) const {
  const plan::BufferKind kind = plan_.buffers[operand.buffer].kind;
  if (kind == plan::BufferKind::Weight)
    return f(0, operand.bytes);
  if (kind == plan::BufferKind::Residual)
    return f(0, static_cast<uint64_t>(meta.numTokens) * static_cast<uint64_t>(plan_.model->hidden) * sizeof(float));
  std::set<int64_t> blocks;
  for (int32_t s = 0; s < meta.numSequences; ++s) {
    const int32_t *table = meta.array<int32_t>(meta.blockTable) + int64_t{s} * meta.tableStride;
    for (int64_t b = 0; b * plan_.blockTokens < meta.array<int32_t>(meta.contextLength)[s]; ++b)
      blocks.insert(table[b]);
  }
  for (const int64_t number : blocks)
    if (const auto offset = offsetOf(operand, number))
      f(*offset, blockBytes(operand));
}

uint64_t Brought::blockBytes(const plan::Operand &operand) const {
  return plan_.buffers[operand.buffer].kind == plan::BufferKind::Act ? plan_.actBlockBytes() : plan_.kvBlockBytes();
}

std::optional<uint64_t> Brought::offsetOf(const plan::Operand &operand, int64_t number) const {
  const bool acts = plan_.buffers[operand.buffer].kind == plan::BufferKind::Act;
  const uint64_t block = blockBytes(operand);
  const int64_t of = number - (acts ? plan_.kvBlocks : 0) - static_cast<int64_t>(operand.bufferOffset / block);
  if (acts != (number >= plan_.kvBlocks) || of < 0 || static_cast<uint64_t>(of) >= operand.bytes / block)
    return std::nullopt;
  return static_cast<uint64_t>(of) * block;
}

// Rows that are appended to a tail: the first of a block makes it new, before others its rows have to be there.
bool Brought::append(const plan::Operand &operand, const kernels::IterationMeta &meta) {
  for (int32_t row = 0; row < meta.numTokens; ++row) {
    const int64_t slot = meta.array<int32_t>(meta.kvSlot)[row];
    const auto offset = offsetOf(operand, slot / plan_.blockTokens);
    if (!offset)
      continue;
    const uint64_t address = operand.address + *offset, inBuffer = operand.bufferOffset + *offset;
    if (slot % plan_.blockTokens == 0)
      hold(address, blockBytes(operand), operand.buffer, inBuffer);
    else if (!holds(address, blockBytes(operand), operand.buffer, inBuffer))
      return false;
  }
  return true;
}

// Whether all that a compute step works on in place of a home is there; what it writes there then is.
bool Brought::compute(const plan::Schedule &schedule, const plan::Operand &operand, bool appends,
                      const kernels::IterationMeta &meta) {
  if (operand.buffer >= plan_.buffers.size() || isHome(schedule, operand)) {
    if (operand.access != plan::Access::Read)
      plan::forEachRun(plan_, operand, [&](uint64_t begin, uint64_t bytes) { drop(begin, begin + bytes); });
    return true;
  }
  if (appends)
    return append(operand, meta);
  bool there = true;
  forEachUsed(operand, meta, [&](uint64_t offset, uint64_t bytes) {
    const uint64_t address = operand.address + offset, inBuffer = operand.bufferOffset + offset;
    if (operand.access == plan::Access::Write)
      hold(address, bytes, operand.buffer, inBuffer);
    else
      there &= holds(address, bytes, operand.buffer, inBuffer);
  });
  return there;
}

std::string Brought::play(const plan::Schedule &schedule, const kernels::IterationMeta *first,
                          const std::function<Run(const plan::Step &)> &runOf) {
  // A slot of the next placement may be where a weight is at home now, and holds it then.
  for (const plan::Extent &extent : plan_.placements[schedule.placement].extents)
    if (first != nullptr && extent.space == plan::Space::Device &&
        plan_.buffers[extent.buffer].kind == plan::BufferKind::Weight)
      hold(extent.address, extent.bytes, extent.buffer, extent.bufferOffset);
  std::string missing;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    if (step.kind == plan::StepKind::Copy) {
      const plan::Operand &to = schedule.operands[step.firstOperand + 1];
      const Run run = runOf(step);
      if (step.lane == plan::Lane::H2D && to.interleaved)
        plan::forEachRun(plan_, to, [&](uint64_t begin, uint64_t bytes) { drop(begin, begin + bytes); });
      else if (step.lane == plan::Lane::H2D)
        hold(to.address + run.offset, run.bytes, to.buffer, to.bufferOffset + run.offset);
      continue;
    }
    const bool appends = step.kind == plan::StepKind::Compute && step.op == kernels::Op::RopeAppend;
    for (const bool writes : {false, true}) // all that a step reads before what it writes
      for (uint32_t o = step.firstOperand; o < step.firstOperand + step.operandCount; ++o) {
        const plan::Operand &operand = schedule.operands[o];
        if (operand.space != plan::Space::Device || writes != (operand.access == plan::Access::Write))
          continue;
        const kernels::IterationMeta &meta = *kernels::metaOf(plan_.metaLayout, first, step.miniBatch);
        if (!compute(schedule, operand, appends, meta) && missing.empty())
          missing = absl::StrCat("step ", i, ", ", std::string(kernels::opName(step.op)), " of layer ", step.layer,
                                 ", finds not all that it uses of ", plan_.buffers[operand.buffer].name, " at ",
                                 operand.address);
      }
  }
  return missing;
}

} // namespace headrace::choices
