// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/CacheSpots.h"
#include "tests/unit/plan/MutationParts.h"
#include "tests/unit/plan/PlanParts.h"

namespace headrace::plan::test {
namespace {

using kernels::Op;

bool isActs(const Plan &plan, uint32_t buffer) {
  return buffer < plan.buffers.size() && plan.buffers[buffer].kind == BufferKind::Act;
}
std::vector<uint32_t> actBuffers(const Plan &plan) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < plan.buffers.size(); ++i)
    if (isActs(plan, i))
      out.push_back(i);
  return out;
}
std::vector<Spot> stepsOf(Plan &plan, std::initializer_list<Op> ops) {
  return spots(plan, [&](const Spot &spot) {
    const Step &step = stepAt(plan, spot);
    return step.kind == StepKind::Compute && std::find(ops.begin(), ops.end(), step.op) != ops.end();
  });
}
// The first step with this op of the layer and mini-batch of another.
Spot besideIt(Plan &plan, const Spot &spot, Op op) {
  for (const Spot &at : stepsOf(plan, {op}))
    if (at.schedule == spot.schedule && stepAt(plan, at).layer == stepAt(plan, spot).layer &&
        stepAt(plan, at).miniBatch == stepAt(plan, spot).miniBatch)
      return at;
  return {spot.schedule, kNone};
}
void lieAtHome(const Plan &plan, const Schedule &s, Operand &o, uint32_t buffer) {
  for (const Extent &e : plan.placements[s.placement].extents)
    if (e.buffer == buffer)
      o = {buffer, e.space, o.access, o.arg, 0, e.bytes, e.address};
}
// Edges go with their steps; or are made anew, so that only what the step may not do gives it away.
void moveCompute(Plan &plan, const Spot &spot, uint32_t to, bool anew) {
  Schedule &s = scheduleAt(plan, spot);
  const uint32_t from = spot.step;
  const auto move = [&](auto &of) {
    const auto at = [&](uint32_t i) { return of.begin() + static_cast<std::ptrdiff_t>(i); };
    if (from < to)
      std::rotate(at(from), at(from + 1), at(to + 1));
    else
      std::rotate(at(to), at(from), at(from + 1));
  };
  move(s.steps);
  for (Variant &v : plan.variants)
    if (v.schedule == spot.schedule)
      move(v.durationsNs);
  const auto now = [&](uint32_t number) {
    if (number == from)
      return to;
    return from < to ? number - (number > from && number <= to ? 1 : 0) : number + (number >= to && number < from ? 1 : 0);
  };
  for (Edge &edge : s.edges)
    edge = {now(edge.from), now(edge.to), edge.kind};
  std::erase_if(s.edges, [](const Edge &edge) { return edge.from >= edge.to; });
  sortEdges(s);
  if (anew)
    connect(plan, s);
}
void eraseCompute(Plan &plan, const Spot &spot, bool anew) {
  for (Variant &v : plan.variants)
    if (v.schedule == spot.schedule)
      v.computeAloneNs -= v.durationsNs[spot.step];
  eraseStep(plan, spot);
  if (anew)
    connect(plan, scheduleAt(plan, spot));
}
// Other transients of a schedule that are as large, those of the same name first.
std::vector<uint32_t> localsLike(const Plan &plan, const Schedule &s, uint32_t than) {
  const Buffer &own = plan.buffer(s, than);
  std::vector<uint32_t> out;
  for (const bool sameName : {true, false})
    for (uint32_t i = 0; i < s.locals.size() && out.empty(); ++i)
      for (uint32_t k = i; k < s.locals.size(); ++k)
        if (const Buffer &b = s.locals[k].buffer; plan.buffers.size() + k != than && b.bytes >= own.bytes &&
                                                  b.kind == own.kind && (b.name == own.name) == sameName &&
                                                  std::find(out.begin(), out.end(), k) == out.end())
          out.push_back(k);
  return out;
}
void useLocal(const Plan &plan, const Schedule &s, Operand &o, uint32_t local) {
  o.buffer = static_cast<uint32_t>(plan.buffers.size()) + local;
  o.address = s.locals[local].address;
}

// --- whose -----------------------------------------------------------------------------------------------------------

template <bool kOfMiniBatch> bool useAnothersActs(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::ActAppend, Op::RecomputeKv});
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
  std::vector<Spot> of = stepsOf(plan, {Op::ActAppend, Op::RecomputeKv});
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
  if (acts == kNone)
    return false;
  lieAtHome(plan, scheduleAt(plan, spot), *part(plan, spot, coin(random) ? Arg::Kv : Arg::KvRecomputed), acts);
  return true;
}
bool stepOfAnotherLayer(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::ActAppend, Op::RecomputeKv});
  if (of.empty())
    return false;
  const auto layers = static_cast<int32_t>(plan.model->layers);
  int32_t &layer = stepAt(plan, pick(random, of)).layer;
  layer = below(random, 4) == 0 ? -1 : (layer + 1 + static_cast<int32_t>(below(random, layers - 1))) % layers;
  return true;
}
// The matrix of another layer's qkv, or of another unit of the layer, where another step reads it.
bool recomputeFromOtherWeights(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::RecomputeKv});
  if (of.empty())
    return false;
  const Spot spot = pick(random, of);
  const Arg arg = below(random, 4) != 0                             ? Arg::Weight
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

bool recomputeBehindAppend(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::RecomputeKv});
  if (of.empty())
    return false;
  const Spot spot = pick(random, of);
  moveCompute(plan, spot, besideIt(plan, spot, Op::RopeAppend).step, below(random, 4) != 0);
  return true;
}
bool attendBefore(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::Attention});
  const Spot spot = pick(random, of);
  const Spot to = besideIt(plan, spot, coin(random) ? Op::RecomputeKv : Op::ActAppend);
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
// Where an iteration brings its weights, before their copy in order, or without an edge from it.
bool recomputeBeforeCopy(Plan &plan, Random &random) {
  std::vector<std::pair<Spot, Spot>> pairs; // copy, recompute_kv
  for (const Spot &spot : stepsOf(plan, {Op::RecomputeKv}))
    for (uint32_t i = 0; i < spot.step; ++i)
      if (const Spot copy{spot.schedule, i}; stepAt(plan, copy).kind == StepKind::Copy &&
                                             source(plan, copy).buffer == part(plan, spot, Arg::Weight)->buffer)
        pairs.emplace_back(copy, spot);
  if (pairs.empty())
    return false;
  const auto [copy, spot] = pick(random, pairs);
  if (coin(random)) {
    moveCompute(plan, spot, copy.step, coin(random));
    return true;
  }
  Schedule &s = scheduleAt(plan, spot);
  for (Edge &edge : s.edges) // the next step waits instead
    if (edge.from == copy.step && edge.to <= spot.step)
      edge.to = spot.step + 1;
  std::erase_if(s.edges, [&](const Edge &edge) { return s.steps[edge.from].lane == s.steps[edge.to].lane; });
  sortEdges(s);
  s.edges.erase(std::unique(s.edges.begin(), s.edges.end(),
                            [](const Edge &a, const Edge &b) { return a.from == b.from && a.to == b.to; }),
                s.edges.end());
  return true;
}

// --- which transient -------------------------------------------------------------------------------------------------

// An append or attention, or both, look at what was made for another layer or mini-batch.
bool useAnotherTransient(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::RopeAppend, Op::Attention});
  const Spot spot = pick(random, of);
  Schedule &s = scheduleAt(plan, spot);
  const Operand *own = part(plan, spot, Arg::KvRecomputed);
  if (own == nullptr)
    return false;
  std::vector<uint32_t> others = localsLike(plan, s, own->buffer);
  if (others.empty())
    return false;
  const uint32_t to = pick(random, others);
  for (const Op op : {Op::RopeAppend, Op::Attention})
    if (const Spot at = besideIt(plan, spot, op); at.step == spot.step || below(random, 3) == 0)
      useLocal(plan, s, *part(plan, at, Arg::KvRecomputed), to);
  return true;
}
bool recomputeElsewhere(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::RecomputeKv});
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
// Behind the first recompute_kv, the append or attention of a turn once more, into the same transient: of its own turn
// or of another layer. Behind attention of another layer, before its own turn, it is no fault.
bool recomputeOnceMore(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::RecomputeKv});
  if (of.empty())
    return false;
  const Spot spot = pick(random, of);
  const uint8_t miniBatch = stepAt(plan, spot).miniBatch;
  std::erase_if(of, [&](const Spot &at) {
    return at.schedule != spot.schedule || stepAt(plan, at).miniBatch != miniBatch;
  });
  const Spot what = pick(random, of);
  const Op behind = std::vector<Op>{Op::RecomputeKv, Op::RopeAppend, Op::Attention}[below(random, 3)];
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

// Other results of a layer, between recompute_kv and its attention, in the same transient.
bool overwriteWhatWasRecomputed(Plan &plan, Random &random) {
  std::vector<std::pair<uint32_t, uint32_t>> pairs; // schedule; an operand of a result
  std::vector<Operand> onto;
  for (const Spot &spot : stepsOf(plan, {Op::RecomputeKv})) {
    const Schedule &s = scheduleAt(plan, spot);
    const Operand &y = *part(plan, spot, Arg::Y);
    for (uint32_t i = spot.step + 1; i < besideIt(plan, spot, Op::Attention).step; ++i)
      for (uint32_t k = s.steps[i].firstOperand; k < s.steps[i].firstOperand + s.steps[i].operandCount; ++k)
        if (const Operand &o = s.operands[k];
            o.buffer >= plan.buffers.size() && o.buffer != y.buffer && o.access == Access::Write && o.bytes <= y.bytes &&
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

// --- how many, and how large -----------------------------------------------------------------------------------------

bool oneBlockShort(Plan &plan, Random &random) {
  if (plan.actBlocks == 0)
    return false;
  Schedule &s = pick(random, plan.schedules);
  switch (below(random, 4)) {
  case 0: { // of all layers
    const uint64_t less = plan.actBlockBytes();
    if (plan.actBlocks == 1)
      return false;
    for (Buffer &b : plan.buffers)
      b.bytes -= b.kind == BufferKind::Act ? less : 0;
    for (Placement &p : plan.placements)
      for (Extent &e : p.extents)
        e.bytes -= isActs(plan, e.buffer) ? less : 0;
    for (Schedule &of : plan.schedules)
      for (Operand &o : of.operands)
        o.bytes -= isActs(plan, o.buffer) ? less : 0;
    return true;
  }
  case 1: { // a transient
    std::vector<uint32_t> made;
    for (uint32_t i = 0; i < s.locals.size(); ++i)
      if (s.locals[i].buffer.name == "recomputed" && s.locals[i].buffer.bytes > plan.kvBlockBytes())
        made.push_back(i);
    if (made.empty())
      return false;
    const uint32_t local = pick(random, made);
    s.locals[local].buffer.bytes -= plan.kvBlockBytes();
    for (Operand &o : s.operands)
      o.bytes -= o.buffer == plan.buffers.size() + local ? plan.kvBlockBytes() : 0;
    return true;
  }
  case 2: { // an operand
    std::vector<uint32_t> of;
    for (uint32_t k = 0; k < s.operands.size(); ++k)
      if (const Operand &o = s.operands[k];
          o.bytes > plan.kvBlockBytes() && (o.arg == Arg::KvRecomputed || isActs(plan, o.buffer)))
        of.push_back(k);
    if (of.empty())
      return false;
    Operand &o = s.operands[pick(random, of)];
    const uint64_t less = isActs(plan, o.buffer) ? plan.actBlockBytes() : plan.kvBlockBytes();
    o.bytes -= std::min(less, o.bytes - 64);
    return true;
  }
  default: { // ids
    const uint32_t history = plan.ioBuffer(Io::History);
    const uint64_t own = plan.buffers[history].bytes / plan.miniBatches, less = own - model::kAlign;
    if (less == 0)
      return false;
    plan.buffers[history].bytes = less * plan.miniBatches;
    for (Placement &p : plan.placements)
      for (Extent &e : p.extents)
        e.bytes = e.buffer == history ? less * plan.miniBatches : e.bytes;
    for (Schedule &of : plan.schedules)
      for (Operand &o : of.operands)
        if (o.buffer == history) {
          const uint64_t miniBatch = o.bufferOffset / own;
          o.address -= o.bufferOffset - miniBatch * less;
          o.bufferOffset = miniBatch * less;
          o.bytes = less;
        }
  }
  }
  return true;
}
bool changeActCounts(Plan &plan, Random &random) {
  const auto by = static_cast<int64_t>(1 + below(random, 3)) * (coin(random) ? 1 : -1);
  switch (below(random, 4)) {
  case 0:
    plan.actBlocks += by;
    if (coin(random))
      plan.metaLayout.maxActBlocks = plan.actBlocks;
    return true;
  case 1:
    plan.contextBlocks += by;
    return true;
  case 2:
    (coin(random) ? plan.actShare.num : plan.actShare.den) += by;
    return true;
  default:
    plan.kvBlocks += by;
    for (Placement &p : plan.placements)
      p.kvBlocks += by;
    if (plan.actBlocks > 0 && coin(random))
      plan.metaLayout.firstActBlock = plan.kvBlocks;
    return true;
  }
}
bool changeActMeta(Plan &plan, Random &random) {
  const auto by = static_cast<int64_t>(1 + below(random, 3)) * (coin(random) ? 1 : -1);
  (plan.actBlocks > 0 && coin(random) ? plan.metaLayout.firstActBlock : plan.metaLayout.maxActBlocks) += by;
  return true;
}
// As if there were none; or as if there were some where there are none.
bool denyActs(Plan &plan, Random &random) {
  if (plan.actBlocks == 0) {
    std::vector<Spot> of = stepsOf(plan, {Op::Activate, Op::Norm});
    switch (below(random, 3)) {
    case 0:
      plan.actBlocks = plan.metaLayout.maxActBlocks = 1;
      plan.metaLayout.firstActBlock = plan.kvBlocks;
      plan.actShare = {1, 2};
      return true;
    case 1:
      stepAt(plan, pick(random, of)).op = coin(random) ? Op::ActAppend : Op::RecomputeKv;
      return true;
    default:
      of = stepsOf(plan, {Op::RopeAppend, Op::Attention});
      part(plan, pick(random, of), Arg::Kv)->arg = coin(random) ? Arg::Act : Arg::KvRecomputed;
      return true;
    }
  }
  plan.actBlocks = 0;
  if (below(random, 4) != 0)
    plan.contextBlocks = 0;
  if (below(random, 4) != 0)
    plan.actShare = {};
  if (below(random, 4) != 0)
    plan.metaLayout.maxActBlocks = 0;
  if (below(random, 4) != 0)
    plan.metaLayout.firstActBlock = kernels::MetaLayout{}.firstActBlock;
  if (coin(random))
    for (Buffer &b : plan.buffers)
      b.kind = b.kind == BufferKind::Act ? BufferKind::Packed : b.kind;
  return true;
}
bool changeActBuffer(Plan &plan, Random &random) {
  std::vector<uint32_t> all = actBuffers(plan);
  if (all.empty())
    return false;
  Buffer &b = plan.buffers[pick(random, all)];
  switch (below(random, 4)) {
  case 0:
    b.kind = coin(random) ? BufferKind::Packed : BufferKind::Staging;
    return true;
  case 1:
    b.index = below(random, 2) == 0 && plan.miniBatches > 1 ? (b.index + 1) % plan.miniBatches : plan.miniBatches;
    return true;
  case 2:
    b.layer = (b.layer + 1) % static_cast<int32_t>(plan.model->layers);
    return true;
  default:
    b.name = "activations";
    return true;
  }
}

// --- operands and places ---------------------------------------------------------------------------------------------

bool changeActAccess(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::ActAppend, Op::RecomputeKv, Op::RopeAppend, Op::Attention});
  const Spot spot = pick(random, of);
  std::vector<Operand *> operands;
  for (const Arg arg : {Arg::Act, Arg::KvRecomputed, Arg::Y})
    if (Operand *o = part(plan, spot, arg); o != nullptr)
      operands.push_back(o);
  if (operands.empty())
    return false;
  pick(random, operands)->access = static_cast<Access>(below(random, 3));
  return true;
}
bool leaveActOperandOut(Plan &plan, Random &random) {
  std::vector<Spot> of = stepsOf(plan, {Op::ActAppend, Op::RecomputeKv, Op::RopeAppend, Op::Attention});
  const Spot spot = pick(random, of);
  std::vector<Arg> args;
  for (const Arg arg : {Arg::Act, Arg::KvRecomputed, Arg::Bias, Arg::NormWeights})
    if (part(plan, spot, arg) != nullptr && plan.actBlocks > 0)
      args.push_back(arg);
  if (args.empty())
    return false;
  Step &step = stepAt(plan, spot);
  Operand &last = scheduleAt(plan, spot).operands[step.firstOperand + step.operandCount - 1];
  std::swap(*part(plan, spot, pick(random, args)), last);
  --step.operandCount;
  return true;
}
// Two layers' or mini-batches', and their steps know.
bool actsInOneRange(Plan &plan, Random &random) {
  std::vector<uint32_t> all = actBuffers(plan);
  if (all.size() < 2)
    return false;
  const uint32_t moving = pick(random, all), onto = pick(random, all);
  uint64_t to = 0;
  for (Placement &p : plan.placements) {
    for (const Extent &e : p.extents)
      to = e.buffer == onto ? e.address : to;
    for (Extent &e : p.extents)
      e.address = e.buffer == moving ? to : e.address;
  }
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      o.address = o.buffer == moving ? to : o.address;
  return moving != onto;
}
// A home in one placement alone, or an operand.
bool moveActs(Plan &plan, Random &random) {
  std::vector<uint32_t> all = actBuffers(plan);
  if (all.empty())
    return false;
  const uint32_t moving = pick(random, all);
  const auto placement = static_cast<uint32_t>(below(random, plan.placements.size()));
  Extent *home = nullptr;
  for (Extent &e : plan.placements[placement].extents)
    home = e.buffer == moving ? &e : home;
  const bool away = below(random, 3) == 0;
  const uint64_t to = away ? plan.hostBytes : plan.arenaBytes;
  bool found = false;
  if (coin(random)) {
    home->space = away ? Space::Host : Space::Device;
    home->address = to;
    (away ? plan.hostBytes : plan.arenaBytes) += home->bytes;
    plan.deviceMemory = std::max(plan.deviceMemory, plan.arenaBytes);
    found = true;
  }
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      if (s.placement == placement && o.buffer == moving && (home->address == to || !found)) {
        o.address = home->address == to ? to : moved(random, o.address, 256, 8);
        o.space = home->space;
        found = true;
      }
  return found;
}
// A copy from their home, or to it, which no rule has.
bool copyActs(Plan &plan, Random &random) {
  std::vector<uint32_t> all = actBuffers(plan);
  if (all.empty())
    return false;
  const auto schedule = static_cast<uint32_t>(below(random, plan.schedules.size()));
  Schedule &s = plan.schedules[schedule];
  Operand at;
  lieAtHome(plan, s, at, pick(random, all));
  Operand aside = at;
  aside.space = Space::Host;
  aside.address = plan.hostBytes;
  const bool back = coin(random);
  (back ? at : aside).access = Access::Read, (back ? at : aside).arg = Arg::Source;
  (back ? aside : at).access = Access::Write, (back ? aside : at).arg = Arg::Destination;
  Step step;
  step.kind = StepKind::Copy;
  step.lane = back ? Lane::D2H : Lane::H2D;
  step.part = Part::Movement;
  step.layer = plan.buffers[at.buffer].layer;
  step.linkBytes = at.bytes;
  insertCopy(plan, schedule, static_cast<uint32_t>(below(random, s.steps.size() + 1)), step, back ? at : aside,
             back ? aside : at);
  if (coin(random))
    connect(plan, s);
  return true;
}
bool splitBesideActs(Plan &plan, Random &) {
  if (plan.actBlocks == 0)
    return false;
  for (Placement &p : plan.placements)
    for (Extent &e : p.extents)
      e.interleaved = isCache(plan, e.buffer);
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      o.interleaved = o.arg == Arg::Kv;
  return true;
}

} // namespace

const std::vector<Mutation> &actMutations() {
  static const std::vector<Mutation> all = {
      {"use another layer's activation blocks", useAnothersActs<false>},
      {"use another mini-batch's activation blocks", useAnothersActs<true>},
      {"keys and values as activation blocks", valuesAsActs},
      {"activation blocks as keys and values", actsAsValues},
      {"keep or recompute for another layer", stepOfAnotherLayer},
      {"recompute from other weights", recomputeFromOtherWeights},
      {"recompute behind the append", recomputeBehindAppend},
      {"attend before recomputing or keeping", attendBefore},
      {"keep rows behind attention", keepBehindAttention},
      {"keep no rows", leaveStepOut<Op::ActAppend>},
      {"recompute nothing", leaveStepOut<Op::RecomputeKv>},
      {"recompute before the weights' copy", recomputeBeforeCopy},
      {"use what was recomputed for another", useAnotherTransient},
      {"recompute into another's transient", recomputeElsewhere},
      {"recompute once more", recomputeOnceMore},
      {"overwrite what was recomputed", overwriteWhatWasRecomputed},
      {"one block short", oneBlockShort},
      {"change counts of activation blocks", changeActCounts},
      {"change the meta's activation blocks", changeActMeta},
      {"deny that there are activation blocks", denyActs},
      {"change a buffer of activation blocks", changeActBuffer},
      {"change an access of activation blocks", changeActAccess},
      {"leave an operand of activation blocks out", leaveActOperandOut},
      {"activation blocks in one range", actsInOneRange},
      {"move activation blocks", moveActs},
      {"copy activation blocks", copyActs},
      {"split caches beside activation blocks", splitBesideActs},
  };
  return all;
}

} // namespace headrace::plan::test
