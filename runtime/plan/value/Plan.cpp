// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/value/Plan.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/BlockRuns.h"

namespace headrace::plan {

std::string startText(const Placement &placement) {
  std::string text(model::startRuleName(placement.startRule));
  if (placement.startRule == model::StartRule::Ahead)
    text += " " + std::to_string(placement.startItems);
  return text;
}

const char *argName(Arg arg) {
  static constexpr const char *kNames[model::enumCount<Arg>()] = {
      "source",    "destination", "meta",    "x",       "y",         "weight",    "bias",
      "norm",      "residual",    "kv",      "table",   "positions", "sampled",   "output",
      "workspace", "kv tail",     "kv home", "history", "act",       "rebuilt kv"};
  const auto i = static_cast<size_t>(arg);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

namespace {

uint32_t find(const Plan &plan, BufferKind kind, int64_t layer, uint32_t index) {
  for (uint32_t i = 0; i < plan.buffers.size(); ++i)
    if (const Buffer &b = plan.buffers[i]; b.kind == kind && b.layer == layer && b.index == index)
      return i;
  return kNone;
}

// The number of bytes that at least one of the ranges covers.
uint64_t unionBytes(std::vector<std::pair<uint64_t, uint64_t>> ranges) {
  std::sort(ranges.begin(), ranges.end());
  uint64_t bytes = 0, covered = 0;
  for (const auto &[begin, end] : ranges) {
    if (end <= covered)
      continue;
    bytes += end - std::max(begin, covered);
    covered = end;
  }
  return bytes;
}

} // namespace

const char *bufferKindName(BufferKind kind) {
  switch (kind) {
  case BufferKind::Weight:
    return "weight";
  case BufferKind::Kv:
    return "kv";
  case BufferKind::Io:
    return "io";
  case BufferKind::Activation:
    return "activation";
  case BufferKind::Workspace:
    return "workspace";
  case BufferKind::Act:
    return "act";
  case BufferKind::Residual:
    return "residual";
  }
  return "";
}

uint32_t Plan::kvBuffer(int64_t layer, uint32_t miniBatch) const {
  return find(*this, BufferKind::Kv, layer, miniBatch);
}
uint32_t Plan::ioBuffer(Io which) const { return find(*this, BufferKind::Io, -1, static_cast<uint32_t>(which)); }

uint64_t Plan::kvBlockBytes() const { return kvEncoding.bytes(2 * model->kvHeads * blockTokens, model->headDim); }

uint64_t Plan::actBlockBytes() const {
  if (actBlocks == 0)
    return 0;
  return static_cast<uint64_t>(model->hidden) * static_cast<uint64_t>(blockTokens) * model::dtypeBytes(activationDtype);
}

bool Plan::residualsLeave() const { return find(*this, BufferKind::Residual, -1, 0) != kNone; }
bool Plan::receives() const { return !model->embeds(); }
bool Plan::sends() const { return !model->hasHead(); }

uint64_t Plan::kvCaches() const { return static_cast<uint64_t>(model->layers) * miniBatches; }
uint64_t Plan::kvStride() const { return kvCaches() * kvBlockBytes(); }

static_assert(model::kMaxMiniBatches == kernels::kMostMiniBatches);

std::string kvName(int64_t layer, uint32_t miniBatch, uint32_t miniBatches) {
  return miniBatches == 1 ? absl::StrCat("kv.", layer) : absl::StrCat("kv.", layer, ".", miniBatch);
}

bool bringsOneRowEach(const Plan &plan, const Variant &variant) {
  return plan.schedules[variant.schedule].iterationClass == IterationClass::Decode;
}

int64_t actRows(const Plan &plan, const Variant &variant) {
  return std::min(plan.actBlocks * plan.blockTokens,
                  variant.sequences * model::actRows(plan.actRatio, plan.blockTokens, variant.context));
}

std::string actName(int64_t layer, uint32_t miniBatch, uint32_t miniBatches) {
  return miniBatches == 1 ? absl::StrCat("act.", layer) : absl::StrCat("act.", layer, ".", miniBatch);
}

std::string residualName(uint32_t miniBatch, uint32_t miniBatches) {
  return miniBatches == 1 ? "residual" : absl::StrCat("residual.", miniBatch);
}

const Buffer &Plan::buffer(const Schedule &schedule, uint32_t id) const {
  if (id < buffers.size())
    return buffers[id];
  assert(id - buffers.size() < schedule.locals.size());
  return schedule.locals[id - buffers.size()].buffer;
}

DeviceBytes deviceBytes(const Plan &plan, uint32_t index) {
  const Schedule &schedule = plan.schedules[index];
  const Placement &placement = plan.placements[schedule.placement];
  DeviceBytes out;
  for (const Extent &extent : placement.extents) {
    if (extent.space != Space::Device)
      continue;
    out.peak = std::max(out.peak, addressEnd(plan, extent));
    switch (plan.buffers[extent.buffer].kind) {
    case BufferKind::Weight:
      out.weights += extent.bytes;
      break;
    case BufferKind::Kv:
    case BufferKind::Act:
      out.kv += extent.bytes;
      break;
    case BufferKind::Io:
      out.io += extent.bytes;
      break;
    case BufferKind::Activation:
    case BufferKind::Workspace:
    case BufferKind::Residual:
      break;
    }
  }
  for (const Slot &slot : placement.slots) {
    out.slots += slot.bytes;
    out.peak = std::max(out.peak, slot.address + slot.bytes);
  }
  std::vector<std::pair<uint64_t, uint64_t>> activations, workspaces;
  for (const Local &local : schedule.locals) {
    if (local.address == kNowhere)
      continue;
    const uint64_t end = local.address + local.buffer.bytes;
    out.peak = std::max(out.peak, end);
    (local.buffer.kind == BufferKind::Workspace ? workspaces : activations).emplace_back(local.address, end);
  }
  out.activations = unionBytes(std::move(activations));
  out.workspace = unionBytes(std::move(workspaces));
  return out;
}

bool directToHost(const Schedule &schedule, const Step &step) {
  if (!step.direct)
    return false;
  const auto begin = schedule.operands.begin() + step.firstOperand;
  return std::any_of(begin, begin + step.operandCount, [](const Operand &operand) {
    return operand.space == Space::Host && operand.access != Access::Read;
  });
}

LinkBytes linkBytes(const Schedule &schedule) {
  LinkBytes out;
  for (const Step &step : schedule.steps)
    (toHost(step.lane) || directToHost(schedule, step) ? out.d2h : out.h2d) += step.linkBytes;
  return out;
}

OffloadedWeights offloadedWeights(const Plan &plan, const Placement &placement) {
  OffloadedWeights out;
  std::set<int32_t> layers;
  for (const Extent &extent : placement.extents) {
    const Buffer &buffer = plan.buffers[extent.buffer];
    if (buffer.kind != BufferKind::Weight || extent.space == Space::Device)
      continue;
    if (buffer.layer >= 0)
      layers.insert(buffer.layer);
    else
      (buffer.index == 0 ? out.embedding : out.head) = true; // as WeightLayout has them
  }
  out.layers = static_cast<int32_t>(layers.size());
  out.head |= out.embedding && plan.model->tiedEmbeddings;
  return out;
}

namespace {

HomeBytes bytesByHome(const Plan &plan, uint32_t placement, BufferKind kind) {
  HomeBytes out;
  for (const Extent &extent : plan.placements[placement].extents) {
    if (plan.buffers[extent.buffer].kind != kind)
      continue;
    (extent.space == Space::Device ? out.device : out.host) += extent.bytes;
  }
  return out;
}

} // namespace

HomeBytes weightBytesByHome(const Plan &plan, uint32_t placement) {
  return bytesByHome(plan, placement, BufferKind::Weight);
}
HomeBytes kvBytesByHome(const Plan &plan, uint32_t placement) { return bytesByHome(plan, placement, BufferKind::Kv); }

uint64_t kvSlotBytes(const Plan &plan, uint32_t placement) {
  const std::vector<Slot> &slots = plan.placements[placement].slots;
  std::vector<bool> hold(slots.size(), false);
  const auto mark = [&](uint64_t address) {
    for (size_t i = 0; i < slots.size(); ++i)
      hold[i] = hold[i] || (address >= slots[i].address && address - slots[i].address < slots[i].bytes);
  };
  for (const Schedule &schedule : plan.schedules)
    if (schedule.placement == placement)
      for (const Step &step : schedule.steps)
        for (uint32_t i = 0; i < step.operandCount && step.kind == StepKind::Copy; ++i)
          if (const Operand &of = schedule.operands[step.firstOperand + i];
              of.space == Space::Device && plan.buffer(schedule, of.buffer).kind == BufferKind::Kv)
            mark(of.address);
  for (const State &state : plan.states)
    if (state.placement == placement)
      for (const Content &content : state.contents)
        if (plan.buffers[content.buffer].kind == BufferKind::Kv)
          mark(content.address);
  uint64_t bytes = 0;
  for (size_t i = 0; i < slots.size(); ++i)
    bytes += hold[i] ? slots[i].bytes : 0;
  return bytes;
}

uint64_t kvDeviceBytes(const Plan &plan, uint32_t placement) {
  return model::alignUp(kvBytesByHome(plan, placement).device) + kvSlotBytes(plan, placement);
}

} // namespace headrace::plan
