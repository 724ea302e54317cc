// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/ActSpots.h"
#include "tests/unit/plan/MutationParts.h"
#include "tests/unit/plan/PlanParts.h"

namespace headrace::plan::test {
namespace {

using kernels::Op;

// --- whose -----------------------------------------------------------------------------------------------------------

template <bool kOfMiniBatch> bool useAnothersActs(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::ActAppend, Op::RebuildKv});
  if (of.empty())
    return false;
  const Spot spot = pick(random, of);
  Operand &o = *part(plan, spot, Arg::Act);
  const Buffer &own = plan.buffers[o.buffer];
  std::vector<uint32_t> others = actBuffers(plan);
  std::erase_if(others, [&](uint32_t i) {
    return kOfMiniBatch ? plan.buffers[i].layer != own.layer || i == o.buffer : plan.buffers[i].layer == own.layer;
  });
  if (others.empty())
    return false;
  lieAtHome(plan, scheduleAt(plan, spot), o, pick(random, others));
  return true;
}
bool valuesAsActs(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::ActAppend, Op::RebuildKv});
  if (of.empty())
    return false;
  const Spot spot = pick(random, of);
  lieAtHome(plan, scheduleAt(plan, spot), *part(plan, spot, Arg::Act),
            plan.kvBuffer(stepAt(plan, spot).layer, stepAt(plan, spot).miniBatch));
  return true;
}
bool actsAsValues(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::RopeAppend, Op::Attention});
  const Spot spot = pick(random, of);
  const uint32_t acts = actBuffer(plan, stepAt(plan, spot).layer, stepAt(plan, spot).miniBatch);
  Operand *keys = part(plan, spot, coin(random) ? Arg::Kv : Arg::KvRebuilt);
  if (acts == kNone || keys == nullptr)
    return false;
  lieAtHome(plan, scheduleAt(plan, spot), *keys, acts);
  return true;
}
bool stepOfAnotherLayer(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::ActAppend, Op::RebuildKv});
  if (of.empty())
    return false;
  const auto layers = static_cast<int32_t>(plan.model->layers);
  int32_t &layer = stepAt(plan, pick(random, of)).layer;
  layer = below(random, 4) == 0 ? -1 : (layer + 1 + static_cast<int32_t>(below(random, layers - 1))) % layers;
  return true;
}
// The matrix of another layer's qkv, or of another unit of the layer, where another step reads it.
bool rebuildFromOtherWeights(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::RebuildKv});
  if (of.empty())
    return false;
  const Spot spot = pick(random, of);
  const Arg arg = below(random, 4) != 0                           ? Arg::Weight
                  : part(plan, spot, Arg::NormWeights) != nullptr ? Arg::NormWeights
                                                                  : Arg::Bias;
  Operand *o = part(plan, spot, arg);
  if (o == nullptr)
    return false;
  std::vector<Operand> others;
  for (const Operand &other : scheduleAt(plan, spot).operands)
    if (other.arg == arg && other.buffer != o->buffer)
      others.push_back(other);
  *o = pick(random, others);
  return true;
}

// --- order -----------------------------------------------------------------------------------------------------------

bool rebuildBehindAppend(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::RebuildKv});
  if (of.empty())
    return false;
  const Spot spot = pick(random, of);
  moveCompute(plan, spot, besideIt(plan, spot, Op::RopeAppend).step, below(random, 4) != 0);
  return true;
}
bool attendBefore(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::Attention});
  const Spot spot = pick(random, of);
  const Spot to = besideIt(plan, spot, coin(random) ? Op::RebuildKv : Op::ActAppend);
  if (to.step == kNone)
    return false;
  moveCompute(plan, spot, to.step, below(random, 4) != 0);
  return true;
}
bool keepBehindAttention(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::ActAppend});
  if (of.empty())
    return false;
  const Spot spot = pick(random, of);
  moveCompute(plan, spot, besideIt(plan, spot, Op::Attention).step, below(random, 4) != 0);
  return true;
}
template <Op kOp> bool leaveStepOut(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {kOp});
  if (of.empty())
    return false;
  eraseCompute(plan, pick(random, of), below(random, 4) != 0);
  return true;
}
// --- which transient -------------------------------------------------------------------------------------------------

// An append or attention, or both, look at what was made for another layer or mini-batch.
bool useAnotherTransient(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::RopeAppend, Op::Attention});
  const Spot spot = pick(random, of);
  Schedule &s = scheduleAt(plan, spot);
  const Operand *own = part(plan, spot, Arg::KvRebuilt);
  if (own == nullptr)
    return false;
  std::vector<uint32_t> others = localsLike(plan, s, own->buffer);
  if (others.empty())
    return false;
  const uint32_t to = pick(random, others);
  for (const Op op : {Op::RopeAppend, Op::Attention})
    if (const Spot at = besideIt(plan, spot, op); at.step == spot.step || below(random, 3) == 0)
      useLocal(plan, s, *part(plan, at, Arg::KvRebuilt), to);
  return true;
}
bool rebuildElsewhere(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::RebuildKv});
  if (of.empty())
    return false;
  const Spot spot = pick(random, of);
  Operand &y = *part(plan, spot, Arg::Y);
  std::vector<uint32_t> others = localsLike(plan, scheduleAt(plan, spot), y.buffer);
  if (others.empty())
    return false;
  useLocal(plan, scheduleAt(plan, spot), y, pick(random, others));
  return true;
}
// Behind the first rebuild_kv, the append or attention of a turn once more, into the same transient: of its own turn
// or of another layer. Behind attention of another layer, before its own turn, it is no fault.
bool rebuildOnceMore(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::RebuildKv});
  if (of.empty())
    return false;
  const Spot spot = pick(random, of);
  const uint8_t miniBatch = stepAt(plan, spot).miniBatch;
  std::erase_if(
      of, [&](const Spot &at) { return at.schedule != spot.schedule || stepAt(plan, at).miniBatch != miniBatch; });
  const Spot what = pick(random, of);
  const Op behind = std::vector<Op>{Op::RebuildKv, Op::RopeAppend, Op::Attention}[below(random, 3)];
  const uint32_t at = besideIt(plan, spot, behind).step + 1;
  const Operand into = *part(plan, spot, Arg::Y);
  Schedule &s = scheduleAt(plan, spot);
  Step step = stepAt(plan, what);
  const auto first = static_cast<uint32_t>(s.operands.size());
  for (uint32_t k = 0; k < step.operandCount; ++k)
    s.operands.push_back(Operand(s.operands[step.firstOperand + k]));
  step.firstOperand = first;
  for (uint32_t k = first; k < s.operands.size(); ++k)
    if (Operand &o = s.operands[k]; o.arg == Arg::Y) {
      o = into;
    } else if (o.arg == Arg::Workspace) { // one of its own
      s.locals.push_back(Local(s.locals[o.buffer - plan.buffers.size()]));
      o.buffer = static_cast<uint32_t>(plan.buffers.size() + s.locals.size() - 1);
    }
  s.steps.insert(s.steps.begin() + at, step);
  for (Variant &v : plan.variants)
    if (v.schedule == spot.schedule) {
      constexpr uint64_t kDuration = 100;
      v.durationsNs.insert(v.durationsNs.begin() + at, kDuration);
      v.computeAloneNs += kDuration;
      v.predictedNs += kDuration;
    }
  connect(plan, s);
  return true;
}

// Other results of a layer, between rebuild_kv and its attention, in the same transient.
bool overwriteWhatWasRebuilt(Plan &plan, Random &random) {
  std::vector<std::pair<uint32_t, uint32_t>> pairs; // schedule; an operand of a result
  std::vector<Operand> onto;
  for (const Spot &spot : stepsOf(plan, {Op::RebuildKv})) {
    const Schedule &s = scheduleAt(plan, spot);
    const Operand &y = *part(plan, spot, Arg::Y);
    for (uint32_t i = spot.step + 1; i < besideIt(plan, spot, Op::Attention).step; ++i)
      for (uint32_t k = s.steps[i].firstOperand; k < s.steps[i].firstOperand + s.steps[i].operandCount; ++k)
        if (const Operand &o = s.operands[k]; o.buffer >= plan.buffers.size() && o.buffer != y.buffer &&
                                              o.access == Access::Write && o.bytes <= y.bytes &&
                                              plan.buffer(s, o.buffer).kind == BufferKind::Activation) {
          pairs.emplace_back(spot.schedule, k);
          onto.push_back(y);
        }
  }
  if (pairs.empty())
    return false;
  const size_t which = below(random, pairs.size());
  Schedule &s = plan.schedules[pairs[which].first];
  const uint32_t result = s.operands[pairs[which].second].buffer;
  for (Operand &o : s.operands)
    if (o.buffer == result) {
      o.buffer = onto[which].buffer;
      o.address = onto[which].address;
    }
  connect(plan, s);
  return true;
}

} // namespace

const std::vector<Mutation> &actMutations() {
  static const std::vector<Mutation> all = [] {
    std::vector<Mutation> out = {
        {"use another layer's activation blocks", useAnothersActs<false>},
        {"use another mini-batch's activation blocks", useAnothersActs<true>},
        {"keys and values as activation blocks", valuesAsActs},
        {"activation blocks as keys and values", actsAsValues},
        {"keep or rebuild for another layer", stepOfAnotherLayer},
        {"rebuild from other weights", rebuildFromOtherWeights},
        {"rebuild behind the append", rebuildBehindAppend},
        {"attend before rebuilding or keeping", attendBefore},
        {"keep rows behind attention", keepBehindAttention},
        {"keep no rows", leaveStepOut<Op::ActAppend>},
        {"rebuild nothing", leaveStepOut<Op::RebuildKv>},
        {"rebuild before the weights' copy", rebuildBeforeCopy<Arg::Weight>},
        {"use what was rebuilt for another", useAnotherTransient},
        {"rebuild into another's transient", rebuildElsewhere},
        {"rebuild once more", rebuildOnceMore},
        {"overwrite what was rebuilt", overwriteWhatWasRebuilt},
    };
    out.insert(out.end(), actSizeMutations().begin(), actSizeMutations().end());
    return out;
  }();
  return all;
}

} // namespace headrace::plan::test
