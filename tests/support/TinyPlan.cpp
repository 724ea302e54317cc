// SPDX-License-Identifier: Apache-2.0
#include "tests/support/TinyPlan.h"

#include <algorithm>
#include <map>
#include <string>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/Mirrors.h"

namespace headrace::core {
namespace {

using kernels::Op;
using model::TensorRole;
using model::UnitRole;
using plan::Access;
using plan::Arg;
using plan::Lane;
using plan::Space;

constexpr uint64_t kF32 = 4;

class TinyPlanner {
public:
  explicit TinyPlanner(const TinyPlanOptions &options)
      : o_(options), spec_(options.spec), layout_(model::layoutWeights(options.spec)) {}

  plan::Plan build() {
    describe();
    placeWeights();
    placeRest();
    addStates();
    for (bool decode : {true, false})
      addVariant(decode);
    if (o_.wrap && !o_.offloaded.empty())
      addTransition();
    plan_.arenaBytes = plan_.deviceMemory = arena_;
    return plan_;
  }

private:
  void describe() {
    plan_.model = spec_;
    plan_.hardware.name = "test";
    plan_.hardware.kind = o_.kind;
    plan_.hardware.memoryBytes = plan_.hardware.hostMemoryBytes = uint64_t{1} << 32;
    plan_.hardware.flopsF32 = plan_.hardware.flopsF16 = plan_.hardware.memoryBandwidth = 1e10;
    plan_.hardware.flopsEfficiency = plan_.hardware.memoryEfficiency = 1;
    plan_.hardware.h2dBandwidth = plan_.hardware.d2hBandwidth = 1e9;
    plan_.hardware.duplexBandwidth = 2e9;
    if (o_.kind == model::DeviceKind::Cuda) // and host memory for all of it
      plan_.hardware.cpu = {.cores = 4, .flops = 1e11, .memoryBandwidth = 1e11, .coreBandwidth = 5e9};
    plan_.hardware.copyLatency = 1e-6;
    plan_.blockTokens = o_.blockTokens;
    plan_.maxContext = o_.context;
    const int64_t blocks = (o_.context + o_.blockTokens - 1) / o_.blockTokens;
    plan_.kvBlocks = 1 + o_.batch * blocks;
    plan_.metaLayout = {
        .maxTokens = std::max(o_.promptTokens, o_.batch), .maxSequences = o_.batch, .maxBlocksPerSequence = blocks};
    for (uint32_t index = 0; const model::Unit &unit : layout_.units)
      plan_.buffers.push_back({unit.name, plan::BufferKind::Weight, unit.layer, unit.bytes, index++});
    const uint64_t kv = model::alignUp(
        static_cast<uint64_t>(plan_.kvBlocks * 2 * spec_.kvHeads * o_.blockTokens * spec_.headDim) * kF32);
    for (int64_t layer = 0; layer < spec_.layers; ++layer)
      plan_.buffers.push_back({"kv." + std::to_string(layer), plan::BufferKind::Kv, static_cast<int32_t>(layer), kv});
    const uint64_t ids = model::alignUp(static_cast<uint64_t>(o_.batch) * sizeof(int32_t));
    plan_.buffers.push_back({"meta", plan::BufferKind::Io, -1, kernels::metaBytes(plan_.metaLayout)});
    plan_.buffers.push_back({"sampled", plan::BufferKind::Io, -1, ids, 1});
    plan_.buffers.push_back({"output", plan::BufferKind::Io, -1, ids, 2});
    plan_.buffers.push_back({"history", plan::BufferKind::Io, -1,
                             model::alignUp(static_cast<uint64_t>(plan_.kvBlocks * o_.blockTokens) * sizeof(int32_t)),
                             3});
  }

  kernels::Backend backend() const { return plan::backendOf(o_.kind); }

  uint64_t take(uint64_t bytes) {
    const uint64_t address = arena_;
    arena_ += model::alignUp(bytes);
    return address;
  }

  bool offloaded(int64_t layer) const {
    return std::find(o_.offloaded.begin(), o_.offloaded.end(), layer) != o_.offloaded.end();
  }

  void placeWeights() {
    plan::Placement placement;
    placement.kvBlocks = plan_.kvBlocks;
    placement.name = o_.offloaded.empty() ? "none" : "layers " + std::to_string(o_.offloaded.size());
    for (uint32_t u = 0; u < layout_.units.size(); ++u) {
      const model::Unit &unit = layout_.units[u];
      plan::Extent extent{.buffer = u, .bytes = unit.bytes};
      if ((unit.layer >= 0 && offloaded(unit.layer)) || (u == 0 && o_.offloadEmbedding)) {
        extent.space = Space::Host;
        extent.direct = u == 0;
        extent.address = plan_.hostBytes;
        plan_.hostBytes += unit.bytes;
      } else {
        extent.address = take(unit.bytes);
      }
      placement.extents.push_back(extent);
    }
    const int64_t count = static_cast<int64_t>(o_.offloaded.size());
    slots_ = std::min(o_.slots, count);
    while (o_.wrap && slots_ != 0 && count % slots_ != 0)
      ++slots_;
    for (int64_t s = 0; s < slots_; ++s) {
      const uint64_t bytes = layout_.layerBytes(0);
      placement.slots.push_back({take(bytes), bytes});
    }
    plan_.placements.push_back(placement);
  }

  void placeRest() {
    cacheHomes_ = plan_.hostBytes;
    for (uint32_t b = static_cast<uint32_t>(layout_.units.size()); b < plan_.buffers.size(); ++b)
      plan_.placements[0].extents.push_back(
          {.buffer = b, .bytes = plan_.buffers[b].bytes, .address = take(plan_.buffers[b].bytes)});
  }

  // The k-th offloaded layer's slot.
  const plan::Slot &slotOf(size_t k) const { return plan_.placements[0].slots[k % static_cast<size_t>(slots_)]; }
  uint32_t unitOf(int64_t layer, UnitRole role) const { return static_cast<uint32_t>(layout_.layerUnit(layer, role)); }
  // Where a unit of an offloaded layer lies inside a slot.
  uint64_t offsetInSlot(int64_t layer, UnitRole role) const {
    uint64_t offset = 0;
    for (uint32_t u = unitOf(layer, UnitRole::Qkv); u < unitOf(layer, role); ++u)
      offset += layout_.units[u].bytes;
    return offset;
  }

  void addStates() {
    plan_.states.push_back({});
    if (!o_.wrap || o_.offloaded.empty())
      return;
    plan::State state;
    for (UnitRole role : kLayerUnits) {
      const uint32_t unit = unitOf(o_.offloaded[0], role);
      state.contents.push_back(
          {unit, 0, layout_.units[unit].bytes, slotOf(0).address + offsetInSlot(o_.offloaded[0], role)});
    }
    plan_.states.push_back(state);
  }

  static constexpr UnitRole kLayerUnits[] = {UnitRole::Qkv, UnitRole::Out, UnitRole::Up, UnitRole::Down};

  // ---- One schedule

  uint32_t local(const char *name, uint64_t bytes, plan::BufferKind kind = plan::BufferKind::Activation) {
    bytes = model::alignUp(bytes);
    // The same address in both schedules; the larger one decides how much.
    auto [it, fresh] = localAddress_.try_emplace(name, 0);
    if (fresh)
      it->second = arena_;
    s_->locals.push_back({{name, kind, -1, bytes}, it->second});
    arena_ = std::max(arena_, it->second + bytes);
    return static_cast<uint32_t>(plan_.buffers.size() + s_->locals.size() - 1);
  }

  uint32_t begin(Op op, plan::Part part, int64_t layer) {
    plan::Step step;
    step.op = op;
    step.part = part;
    step.layer = static_cast<int32_t>(layer);
    step.firstOperand = static_cast<uint32_t>(s_->operands.size());
    s_->steps.push_back(step);
    const uint32_t index = static_cast<uint32_t>(s_->steps.size() - 1);
    persistent(Arg::Meta, plan_.ioBuffer(plan::Io::Meta), Access::Read);
    return index;
  }
  void operand(const plan::Operand &operand) {
    s_->operands.push_back(operand);
    ++s_->steps.back().operandCount;
  }
  void onLocal(Arg arg, uint32_t buffer, Access access) {
    const plan::Local &local = s_->locals[buffer - plan_.buffers.size()];
    operand({.buffer = buffer, .access = access, .arg = arg, .bytes = local.buffer.bytes, .address = local.address});
  }
  void persistent(Arg arg, uint32_t buffer, Access access) {
    operand({.buffer = buffer,
             .access = access,
             .arg = arg,
             .bytes = plan_.buffers[buffer].bytes,
             .address = plan_.placements[0].extents[buffer].address});
  }
  // Bytes [from, to) of a unit, where this schedule finds it.
  void onUnit(Arg arg, uint32_t unit, uint64_t from, uint64_t to) {
    const plan::Extent &home = plan_.placements[0].extents[unit];
    const model::Unit &u = layout_.units[unit];
    plan::Operand op{.buffer = unit,
                     .space = home.space,
                     .arg = arg,
                     .bufferOffset = from,
                     .bytes = to - from,
                     .address = home.address + from};
    if (u.layer >= 0 && home.space == Space::Host) {
      op.space = Space::Device;
      const size_t k =
          static_cast<size_t>(std::find(o_.offloaded.begin(), o_.offloaded.end(), u.layer) - o_.offloaded.begin());
      op.address = slotOf(k).address + offsetInSlot(u.layer, u.role) + from;
      const uint32_t step = static_cast<uint32_t>(s_->steps.size() - 1);
      lastReader_[unit] = step;
      if (auto it = copyOf_.find(unit); it != copyOf_.end()) {
        s_->edges.push_back({it->second, step, plan::EdgeKind::Raw});
        copyOf_.erase(it); // later readers follow the first in their lane
      }
    }
    if (op.space == Space::Host) {
      s_->steps.back().direct = true;
      s_->steps.back().linkBytes +=
          static_cast<uint64_t>(s_->maxTokens * spec_.hidden) * model::dtypeBytes(spec_.dtype);
    }
    operand(op);
  }
  // The layer's home for appended rows; the layers' are one behind the other.
  void onHome(uint32_t kv, int64_t layer) {
    const uint64_t from = static_cast<uint64_t>(o_.mirroredFrom) * plan_.kvBlockBytes();
    const uint64_t bytes = static_cast<uint64_t>(plan_.kvBlocks) * plan_.kvBlockBytes() - from;
    operand({.buffer = kv,
             .space = Space::Host,
             .access = Access::ReadWrite,
             .arg = Arg::KvHome,
             .bufferOffset = from,
             .bytes = bytes,
             .address = cacheHomes_ + static_cast<uint64_t>(layer) * bytes});
    plan_.hostBytes = std::max(plan_.hostBytes, s_->operands.back().address + bytes);
    s_->steps.back().direct = true;
    s_->steps.back().linkBytes =
        static_cast<uint64_t>(s_->maxTokens) * plan_.kvBlockBytes() / static_cast<uint64_t>(o_.blockTokens);
  }
  void onTensor(Arg arg, uint32_t unit, TensorRole role) {
    const model::Tensor *tensor = layout_.units[unit].find(role);
    onUnit(arg, unit, tensor->offset, tensor->offset + tensor->bytes);
  }

  void copyUnit(size_t k, UnitRole role) {
    const int64_t layer = o_.offloaded[k];
    const uint32_t unit = unitOf(layer, role);
    plan::Step step;
    step.kind = plan::StepKind::Copy;
    step.lane = Lane::H2D;
    step.part = plan::Part::Movement;
    step.layer = static_cast<int32_t>(layer);
    step.firstOperand = static_cast<uint32_t>(s_->operands.size());
    step.linkBytes = step.deviceBytes = layout_.units[unit].bytes;
    s_->steps.push_back(step);
    const uint32_t index = static_cast<uint32_t>(s_->steps.size() - 1);
    const plan::Extent &home = plan_.placements[0].extents[unit];
    operand({.buffer = unit, .space = Space::Host, .arg = Arg::Source, .bytes = home.bytes, .address = home.address});
    operand({.buffer = unit,
             .access = Access::Write,
             .arg = Arg::Destination,
             .bytes = home.bytes,
             .address = slotOf(k).address + offsetInSlot(layer, role)});
    copyOf_[unit] = index;
    // The range is free once the layer before it in this slot has been read for the last time.
    const size_t count = o_.offloaded.size(), slots = static_cast<size_t>(slots_);
    const uint32_t previous = unitOf(o_.offloaded[(k + count - slots) % count], role);
    if (auto it = lastReader_.find(previous); it != lastReader_.end())
      s_->edges.push_back({it->second, index, plan::EdgeKind::War});
  }

  void norm(uint32_t unit, uint32_t x, uint32_t y, plan::Part part, int64_t layer) {
    begin(Op::Norm, part, layer);
    onLocal(Arg::X, x, Access::Read);
    const model::Tensor *weight = layout_.units[unit].find(TensorRole::NormWeight);
    const model::Tensor *last = layout_.units[unit].find(TensorRole::NormBias);
    last = last != nullptr ? last : weight;
    onUnit(Arg::NormWeights, unit, weight->offset, last->offset + last->bytes);
    onLocal(Arg::Y, y, Access::Write);
  }

  void linear(uint32_t unit, uint32_t x, uint32_t y, bool residual, plan::Part part, int64_t layer, int64_t rows) {
    begin(Op::Linear, part, layer);
    onLocal(Arg::X, x, Access::Read);
    const TensorRole role =
        layout_.units[unit].role == UnitRole::Embedding ? TensorRole::TokenTable : TensorRole::Matrix;
    const model::Tensor *matrix = layout_.units[unit].find(role);
    onTensor(Arg::Weight, unit, role);
    if (layout_.units[unit].find(TensorRole::Bias) != nullptr)
      onTensor(Arg::Bias, unit, TensorRole::Bias);
    if (residual)
      onLocal(Arg::Residual, y, Access::Read);
    onLocal(Arg::Y, y, Access::Write);
    if (kernels::linearWorkspaceBytes(backend(), rows, matrix->rows, matrix->cols) != 0)
      onLocal(Arg::Workspace, workspace_, Access::Write);
  }

  void layerSteps(int64_t layer) {
    const uint32_t kv = plan_.kvBuffer(layer);
    const uint32_t qkvUnit = unitOf(layer, UnitRole::Qkv), up = unitOf(layer, UnitRole::Up);
    norm(qkvUnit, x_, h_, plan::Part::Attention, layer);
    linear(qkvUnit, h_, qkv_, false, plan::Part::Attention, layer, s_->maxTokens);
    begin(Op::RopeAppend, plan::Part::Attention, layer);
    onLocal(Arg::X, qkv_, Access::ReadWrite);
    if (spec_.qkNorm)
      onTensor(Arg::NormWeights, qkvUnit, TensorRole::HeadNorms);
    persistent(Arg::Kv, kv, Access::ReadWrite);
    if (o_.mirroredFrom > 0)
      onHome(kv, layer);
    begin(Op::Attention, plan::Part::Attention, layer);
    onLocal(Arg::X, qkv_, Access::Read);
    persistent(Arg::Kv, kv, Access::Read);
    onLocal(Arg::Y, attention_, Access::Write);
    if (kernels::attentionWorkspaceBytes(backend(), s_->maxSequences, spec_.heads, spec_.headDim, o_.context) != 0)
      onLocal(Arg::Workspace, workspace_, Access::Write);
    linear(unitOf(layer, UnitRole::Out), attention_, x_, true, plan::Part::Attention, layer, s_->maxTokens);
    norm(up, x_, h_, plan::Part::Mlp, layer);
    linear(up, h_, up_, false, plan::Part::Mlp, layer, s_->maxTokens);
    uint32_t activated = up_;
    if (spec_.gated()) {
      begin(Op::Activate, plan::Part::Mlp, layer);
      onLocal(Arg::X, up_, Access::Read);
      onLocal(Arg::Y, gated_, Access::Write);
      activated = gated_;
    }
    linear(unitOf(layer, UnitRole::Down), activated, x_, true, plan::Part::Mlp, layer, s_->maxTokens);
  }

  uint64_t workspaceBytes() const {
    uint64_t bytes =
        std::max(kernels::sampleWorkspaceBytes(backend(), s_->maxSequences, spec_.vocab),
                 kernels::attentionWorkspaceBytes(backend(), s_->maxSequences, spec_.heads, spec_.headDim, o_.context));
    for (const model::Unit &unit : layout_.units)
      for (const model::Tensor &tensor : unit.tensors)
        if (tensor.linearOperand)
          bytes = std::max(bytes, kernels::linearWorkspaceBytes(backend(), s_->maxTokens, tensor.rows, tensor.cols));
    return std::max<uint64_t>(bytes, 1);
  }

  void startSchedule(const char *name, plan::IterationClass iterationClass, int64_t tokens) {
    plan_.schedules.emplace_back();
    s_ = &plan_.schedules.back();
    s_->name = name;
    s_->iterationClass = iterationClass;
    s_->maxTokens = tokens;
    s_->maxSequences = tokens == 0 ? 0 : o_.batch;
    s_->maxContext = tokens == 0 ? 0 : o_.context;
    s_->exitState = static_cast<uint32_t>(plan_.states.size() - 1);
    lastReader_.clear();
    copyOf_.clear();
  }
  void sortEdges() {
    std::stable_sort(s_->edges.begin(), s_->edges.end(), [](const plan::Edge &a, const plan::Edge &b) {
      return std::pair(a.to, a.from) < std::pair(b.to, b.from);
    });
  }

  void addVariant(bool decode) {
    const int64_t rows = decode ? o_.batch : o_.promptTokens;
    startSchedule(decode ? "decode" : "mixed", decode ? plan::IterationClass::Decode : plan::IterationClass::Mixed,
                  rows);
    s_->entryState = s_->exitState;
    const auto rowBytes = [](int64_t count, int64_t width) { return static_cast<uint64_t>(count * width) * kF32; };
    x_ = local("x", rowBytes(o_.promptTokens, spec_.hidden));
    h_ = local("h", rowBytes(o_.promptTokens, std::max(spec_.hidden, spec_.qRows())));
    qkv_ = local("qkv", rowBytes(o_.promptTokens, spec_.qkvRows()));
    attention_ = local("attention", rowBytes(o_.promptTokens, spec_.qRows()));
    up_ = local("up", rowBytes(o_.promptTokens, spec_.upRows()));
    if (spec_.gated())
      gated_ = local("gated", rowBytes(o_.promptTokens, spec_.intermediate));
    const uint32_t last = local("last", rowBytes(o_.batch, spec_.hidden));
    const uint32_t normed = local("normed", rowBytes(o_.batch, spec_.hidden));
    const uint32_t logits = local("logits", rowBytes(o_.batch, spec_.vocab));
    workspace_ = local("workspace", workspaceBytes(), plan::BufferKind::Workspace);

    begin(Op::Embed, plan::Part::Embedding, -1);
    onTensor(Arg::Table, 0, TensorRole::TokenTable);
    if (spec_.learnedPositions)
      onTensor(Arg::Positions, 0, TensorRole::PositionTable);
    persistent(Arg::Sampled, plan_.ioBuffer(plan::Io::Sampled), Access::Read);
    persistent(Arg::History, plan_.ioBuffer(plan::Io::History), Access::ReadWrite);
    onLocal(Arg::X, x_, Access::Write);
    size_t k = 0;
    for (int64_t layer = 0; layer < spec_.layers; ++layer) {
      if (offloaded(layer)) {
        if (!o_.wrap || k > 0) // with wrap the first one is there on entry
          for (UnitRole role : kLayerUnits)
            copyUnit(k, role);
        ++k;
      }
      layerSteps(layer);
    }
    const uint32_t headUnit = static_cast<uint32_t>(layout_.headUnit());
    begin(Op::GatherRows, plan::Part::Head, -1);
    onLocal(Arg::X, x_, Access::Read);
    onLocal(Arg::Y, last, Access::Write);
    norm(headUnit, last, normed, plan::Part::Head, -1);
    linear(spec_.tiedEmbeddings ? 0 : headUnit, normed, logits, false, plan::Part::Head, -1, o_.batch);
    begin(Op::Sample, plan::Part::Head, -1);
    onLocal(Arg::X, logits, Access::Read);
    persistent(Arg::History, plan_.ioBuffer(plan::Io::History), Access::Read);
    persistent(Arg::Sampled, plan_.ioBuffer(plan::Io::Sampled), Access::Write);
    persistent(Arg::Output, plan_.ioBuffer(plan::Io::Output), Access::Write);
    if (kernels::sampleWorkspaceBytes(backend(), s_->maxSequences, spec_.vocab) != 0)
      onLocal(Arg::Workspace, workspace_, Access::Write);
    begin(Op::Sample, plan::Part::Head, -1);
    s_->steps.back().kind = plan::StepKind::Publish;
    persistent(Arg::Output, plan_.ioBuffer(plan::Io::Output), Access::Read);
    if (o_.wrap && !o_.offloaded.empty())
      for (UnitRole role : kLayerUnits)
        copyUnit(0, role);
    sortEdges();

    plan::Variant variant{.newTokens = rows,
                          .sequences = o_.batch,
                          .context = o_.context,
                          .schedule = static_cast<uint32_t>(plan_.schedules.size() - 1)};
    setDurations(variant.durationsNs, variant.computeAloneNs, variant.linkAloneNs);
    variant.predictedNs = variant.computeAloneNs + variant.linkAloneNs;
    plan_.variants.push_back(variant);
  }

  void addTransition() {
    startSchedule("transition", plan::IterationClass::Transition, 0);
    for (UnitRole role : kLayerUnits)
      copyUnit(0, role);
    plan::Transition transition{
        .fromState = 0, .toState = 1, .schedule = static_cast<uint32_t>(plan_.schedules.size() - 1)};
    uint64_t none = 0;
    setDurations(transition.durationsNs, none, transition.predictedNs);
    plan_.transitions.push_back(transition);
  }

  // A nanosecond a byte for copies, 1 us for everything else.
  void setDurations(std::vector<uint64_t> &durations, uint64_t &compute, uint64_t &link) {
    for (const plan::Step &step : s_->steps) {
      const bool copy = step.kind == plan::StepKind::Copy;
      durations.push_back(copy ? step.linkBytes : 1000);
      (copy ? link : compute) += durations.back();
    }
  }

  const TinyPlanOptions &o_;
  const model::ModelSpec &spec_;
  const model::WeightLayout layout_;
  plan::Plan plan_;
  uint64_t arena_ = 0;
  uint64_t cacheHomes_ = 0; // in host memory, with mirroredFrom
  int64_t slots_ = 0;
  plan::Schedule *s_ = nullptr;
  std::map<std::string, uint64_t> localAddress_;
  std::map<uint32_t, uint32_t> lastReader_, copyOf_; // by unit, of the schedule being made
  uint32_t x_ = 0, h_ = 0, qkv_ = 0, attention_ = 0, up_ = 0, gated_ = 0, workspace_ = 0;
};

} // namespace

model::ModelSpec tinyLlama(int64_t layers) {
  model::ModelSpec spec;
  spec.name = "tiny-llama";
  spec.layers = layers;
  spec.hidden = 64;
  spec.heads = 4;
  spec.kvHeads = 2;
  spec.headDim = 16;
  spec.intermediate = 96;
  spec.vocab = 150;
  spec.maxPositions = 128;
  spec.rope.enabled = true;
  spec.dtype = model::DType::F32;
  return spec;
}

model::ModelSpec tinyOpt(int64_t layers) {
  model::ModelSpec spec = tinyLlama(layers);
  spec.name = "tiny-opt";
  spec.family = model::Family::Opt;
  spec.kvHeads = 4;
  spec.norm = model::NormKind::LayerNorm;
  spec.activation = model::Activation::Relu;
  spec.qkvBias = spec.outBias = spec.mlpBias = true;
  spec.rope.enabled = false;
  spec.learnedPositions = true;
  spec.positionOffset = 2;
  spec.tiedEmbeddings = true;
  spec.dtype = model::DType::BF16;
  return spec;
}

plan::Plan tinyPlan(const TinyPlanOptions &options) { return TinyPlanner(options).build(); }

} // namespace headrace::core
