// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/PlanText.h"

#include "runtime/model/ModelSpec.h"

#include <sstream>

namespace headrace::plan::test {
namespace {

template <typename T> void put(std::ostream &out, const T &value) {
  if constexpr (std::is_enum_v<T>)
    out << static_cast<int>(value) << ' ';
  else if constexpr (sizeof(T) == 1)
    out << static_cast<int>(value) << ' ';
  else
    out << value << ' ';
}
void put(std::ostream &out, const model::Encoding &encoding) {
  encoding.packed() ? out << model::encodingText(encoding) << ' ' : out << static_cast<int>(encoding.element) << ' ';
}
template <typename T> void put(std::ostream &out, const std::optional<T> &value) {
  out << (value ? "+" : "-");
  if (value)
    put(out, *value);
}
template <typename... T> void line(std::ostream &out, const char *name, const T &...values) {
  out << name << ": ";
  (put(out, values), ...);
  out << '\n';
}
void list(std::ostream &out, const char *name, const std::vector<uint64_t> &values) {
  out << name << ": ";
  for (const uint64_t value : values)
    out << value << ' ';
  out << '\n';
}

} // namespace

std::string textOf(const Plan &p) {
  std::ostringstream out;
  out.precision(17);
  const model::ModelSpec &m = p.model;
  const model::Hardware &h = p.hardware;
  line(out, "plan", p.version, p.compilerVersion, p.modelHash, p.modelPath, p.reason, p.limitingResource);
  line(out, "model", m.name, m.family, m.layers, m.hidden, m.heads, m.kvHeads, m.headDim, m.intermediate, m.vocab,
       m.maxPositions, m.norm, m.normEps, m.activation, m.qkvBias, m.outBias, m.mlpBias, m.learnedPositions,
       m.positionOffset, m.tiedEmbeddings, m.dtype, m.qkNorm);
  line(out, "packed", model::weightEncodingText(m));
  line(out, "rope", m.rope.enabled, m.rope.theta, m.rope.scaling, m.rope.factor, m.rope.lowFreqFactor,
       m.rope.highFreqFactor, m.rope.originalMaxPositions);
  line(out, "hardware", h.name, h.kind, h.memoryBytes, h.hostMemoryBytes, h.flopsF32, h.flopsF16, h.memoryBandwidth,
       h.h2dBandwidth, h.d2hBandwidth, h.duplexBandwidth, h.copyLatency, h.launchOverhead, h.flopsEfficiency,
       h.memoryEfficiency, h.linkEfficiency);
  for (const model::ClassKey &key : model::classKeys())
    line(out, "of a class", key.key, h.classes.*key.field);
  line(out, "cpu", h.cpu.cores, h.cpu.flops, h.cpu.memoryBandwidth, h.cpu.coreBandwidth);
  // Of the goal what the plan does not have by itself.
  line(out, "goal", p.goal.batch, p.goal.context, p.goal.kvTokens);
  line(out, "policy", p.policy.name, p.policy.none, p.policy.interval, p.policy.offloadLayers, p.policy.startRule,
       p.policy.slots, p.policy.offloadEmbedding, p.policy.offloadHead, p.policy.kvWriteBack, p.policy.kvPlaces);
  line(out, "limits", p.activationDtype, p.kvEncoding, p.blockTokens, p.kvBlocks, p.metaLayout.maxTokens,
       p.metaLayout.maxSequences, p.metaLayout.maxBlocksPerSequence, p.maxContext);
  line(out, "activation blocks", p.actBlocks, p.contextBlocks, p.actRatio.num, p.actRatio.den,
       p.metaLayout.firstActBlock, p.metaLayout.maxActBlocks, p.policy.actRatio.has_value() || p.actRatio.any());
  line(out, "bytes", p.deviceMemory, p.arenaBytes, p.hostBytes);
  line(out, "slowest", p.slowestPermille);
  list(out, "weight hashes", p.weightHashes);
  for (const Buffer &b : p.buffers)
    line(out, "buffer", b.name, b.kind, b.layer, b.bytes, b.index);
  for (const Placement &x : p.placements) {
    line(out, "placement", x.name, x.interval, x.startRule, x.kvBlocks);
    for (const Extent &e : x.extents)
      line(out, " extent", e.buffer, e.space, e.direct, e.bufferOffset, e.bytes, e.address, e.interleaved);
    for (const Slot &slot : x.slots)
      line(out, " slot", slot.address, slot.bytes);
  }
  for (const State &s : p.states) {
    line(out, "state", s.placement);
    for (const Content &c : s.contents)
      line(out, " content", c.buffer, c.bufferOffset, c.bytes, c.address, c.dirty);
  }
  for (const Schedule &s : p.schedules) {
    line(out, "schedule", s.name, s.placement, s.iterationClass, s.maxTokens, s.maxSequences, s.maxContext,
         s.entryState, s.exitState, s.fromPlacement, s.kvBlocks, s.phase, s.period);
    for (const Step &x : s.steps)
      line(out, " step", x.kind, x.lane, x.op, x.part, x.layer, x.miniBatch, x.direct, x.resizable, x.dirtyOnly,
           x.firstOperand, x.operandCount, x.flops, x.deviceBytes, x.linkBytes);
    for (const Operand &o : s.operands)
      line(out, " operand", o.buffer, o.space, o.access, o.arg, o.bufferOffset, o.bytes, o.address, o.interleaved);
    for (const Edge &e : s.edges)
      line(out, " edge", e.from, e.to, e.kind);
    for (const Local &l : s.locals)
      line(out, " local", l.buffer.name, l.buffer.kind, l.buffer.layer, l.buffer.bytes, l.address);
  }
  for (const Variant &v : p.variants) {
    line(out, "variant", v.newTokens, v.sequences, v.context, v.placement, v.schedule, v.predictedNs, v.computeAloneNs,
         v.linkAloneNs);
    list(out, " durations", v.durationsNs);
  }
  for (const Transition &t : p.transitions) {
    line(out, "transition", t.fromState, t.toState, t.schedule, t.predictedNs);
    list(out, " durations", t.durationsNs);
  }
  return out.str();
}

} // namespace headrace::plan::test
