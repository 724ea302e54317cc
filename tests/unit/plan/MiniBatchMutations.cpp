// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/CacheSpots.h"
#include "tests/unit/plan/MutationParts.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {
namespace {

// Another mini-batch than this.
uint32_t other(const Plan &plan, uint32_t than, Random &random) {
  return static_cast<uint32_t>((than + 1 + below(random, plan.miniBatches - 1)) % plan.miniBatches);
}
bool isIo(const Plan &plan, const Operand &o, Io which) {
  return o.buffer < plan.buffers.size() && plan.buffers[o.buffer].kind == BufferKind::Io &&
         plan.buffers[o.buffer].index == static_cast<uint32_t>(which);
}

// --- whose a step and what it uses is --------------------------------------------------------------------------------

template <Io kWhich> bool useAnothersRange(Plan &plan, Random &random) {
  if (plan.miniBatches == 1)
    return false;
  std::vector<Spot> of = spots(plan, [&](const Spot &spot) {
    const Step &step = stepAt(plan, spot);
    const Schedule &s = scheduleAt(plan, spot);
    return step.kind == StepKind::Compute && std::any_of(s.operands.begin() + step.firstOperand,
                                                         s.operands.begin() + step.firstOperand + step.operandCount,
                                                         [&](const Operand &o) { return isIo(plan, o, kWhich); });
  });
  if (of.empty()) // a stage neither embeds nor samples
    return false;
  const Spot spot = pick(random, of);
  const Step &step = stepAt(plan, spot);
  Schedule &s = scheduleAt(plan, spot);
  for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
    if (Operand &o = s.operands[k]; isIo(plan, o, kWhich)) {
      const bool meta = kWhich == Io::Meta;
      const uint64_t to = other(plan, step.miniBatch, random) * (meta ? metaArraysBytes(plan) : o.bytes);
      o.address += to - o.bufferOffset;
      o.bytes -= meta ? to - o.bufferOffset : 0;
      o.bufferOffset = to;
    }
  return true;
}
// Of the iteration buffer only the arrays, or those and a part of the tables.
bool useFewerTables(Plan &plan, Random &random) {
  std::vector<Spot> of = spots(plan, [&](const Spot &spot) { return part(plan, spot, Arg::Meta) != nullptr; });
  Operand &o = *part(plan, pick(random, of), Arg::Meta);
  o.bytes = coin(random) ? metaArraysBytes(plan) : o.bytes - kGranule;
  return true;
}
bool useAnothersCache(Plan &plan, Random &random) {
  std::vector<Spot> of = spotsOf(plan, Arg::Kv);
  if (plan.miniBatches == 1 || of.empty())
    return false;
  const Spot spot = pick(random, of);
  Operand &o = *part(plan, spot, Arg::Kv);
  const uint32_t to = plan.kvBuffer(stepAt(plan, spot).layer, other(plan, stepAt(plan, spot).miniBatch, random));
  for (const Extent &e : plan.placements[scheduleAt(plan, spot).placement].extents)
    if (e.buffer == to && e.bufferOffset == 0) {
      o.buffer = to;
      o.address = e.address;
      return true;
    }
  return false;
}
// A step that reads another's activation, where it is and as large as its own.
bool useAnothersLocal(Plan &plan, Random &random) {
  if (plan.miniBatches == 1)
    return false;
  std::vector<Spot> of = spots(plan, [&](const Spot &spot) {
    const Operand *o = part(plan, spot, Arg::X);
    return stepAt(plan, spot).kind == StepKind::Compute && o != nullptr && o->access == Access::Read &&
           o->buffer >= plan.buffers.size();
  });
  const Spot spot = pick(random, of);
  Operand &o = *part(plan, spot, Arg::X);
  Schedule &s = scheduleAt(plan, spot);
  const auto first = static_cast<uint32_t>(plan.buffers.size());
  const Buffer &own = s.locals[o.buffer - first].buffer;
  std::vector<uint32_t> others;
  for (uint32_t i = 0; i < s.locals.size(); ++i)
    if (const Buffer &b = s.locals[i].buffer; b.index != own.index && b.name == own.name && b.bytes == own.bytes)
      others.push_back(i);
  if (others.empty())
    return false;
  const uint32_t to = pick(random, others);
  o.buffer = first + to;
  o.address = s.locals[to].address;
  return true;
}
bool stepOfAnother(Plan &plan, Random &random) {
  std::vector<Spot> of = spots(plan, [](const Spot &) { return true; });
  Step &step = stepAt(plan, pick(random, of));
  step.miniBatch = static_cast<uint8_t>(plan.miniBatches > 1 && coin(random) ? other(plan, step.miniBatch, random)
                                                                             : plan.miniBatches);
  return true;
}
bool tailOfAnother(Plan &plan, Random &random) {
  std::vector<Spot> of = spotsOf(plan, Arg::Source);
  if (plan.miniBatches == 1 || of.empty())
    return false;
  Step &step = stepAt(plan, pick(random, of));
  step.miniBatch = static_cast<uint8_t>(other(plan, step.miniBatch, random));
  return true;
}
bool localOfAnother(Plan &plan, Random &random) {
  Schedule &s = pick(random, plan.schedules);
  if (s.locals.empty())
    return false;
  uint32_t &index = pick(random, s.locals).buffer.index;
  index = plan.miniBatches > 1 ? other(plan, index, random) : 1;
  return true;
}

// --- two in one range ------------------------------------------------------------------------------------------------

// A residual stream, which lives from the first layer to the last, goes where another's transient is.
bool localsInOneRange(Plan &plan, Random &random) {
  Schedule &s = pick(random, plan.schedules);
  if (plan.miniBatches == 1 || s.locals.empty())
    return false;
  std::vector<uint32_t> residuals, onto;
  for (uint32_t i = 0; i < s.locals.size(); ++i)
    if (s.locals[i].buffer.name == "x")
      residuals.push_back(i);
  if (residuals.empty())
    return false;
  const uint32_t moving = pick(random, residuals);
  for (uint32_t i = 0; i < s.locals.size(); ++i)
    if (s.locals[i].buffer.index != s.locals[moving].buffer.index)
      onto.push_back(i);
  const uint64_t to = s.locals[pick(random, onto)].address;
  for (Operand &o : s.operands)
    if (o.buffer == plan.buffers.size() + moving)
      o.address = to + o.bufferOffset;
  s.locals[moving].address = to;
  return true;
}
// Two mini-batches' blocks of a layer: on the device, or at home in the slab.
bool cachesInOneRange(Plan &plan, Random &random) {
  if (plan.miniBatches == 1)
    return false;
  const auto layer = static_cast<int64_t>(below(random, static_cast<uint64_t>(plan.model->layers)));
  const auto first = static_cast<uint32_t>(below(random, plan.miniBatches));
  const uint32_t moving = plan.kvBuffer(layer, first), onto = plan.kvBuffer(layer, other(plan, first, random));
  const Space space = coin(random) ? Space::Host : Space::Device;
  uint64_t from = 0, to = 0;
  bool any = false;
  for (Placement &p : plan.placements) {
    for (const Extent &e : p.extents)
      if (e.space == space && e.buffer == onto)
        to = e.address - e.bufferOffset;
    for (Extent &e : p.extents)
      if (e.space == space && e.buffer == moving) {
        from = e.address - e.bufferOffset;
        e.address = to + e.bufferOffset;
        any = true;
      }
  }
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      if (any && o.buffer == moving && o.space == space && (space == Space::Host || o.arg == Arg::Kv))
        o.address += to - from;
  return any;
}
// A copy of one's tail goes where another's of the same layer lies, and its layer's steps look there.
bool tailsInOneRange(Plan &plan, Random &random) {
  std::vector<Spot> of = copiesBeforeAppend(plan);
  if (plan.miniBatches == 1 || of.empty())
    return false;
  const Spot copy = pick(random, of);
  Schedule &s = scheduleAt(plan, copy);
  const Operand mine = (&source(plan, copy))[1];
  for (const Operand &o : s.operands)
    if (o.arg == Arg::KvTail && o.buffer != mine.buffer &&
        plan.buffers[o.buffer].layer == plan.buffers[mine.buffer].layer) {
      const uint64_t by = o.address - o.bufferOffset - (mine.address - mine.bufferOffset);
      if (by == 0)
        return false;
      for (Operand &own : s.operands)
        if (own.buffer == mine.buffer && own.space == Space::Device && !own.interleaved)
          own.address += by;
      return true;
    }
  return false;
}

// --- how many --------------------------------------------------------------------------------------------------------

bool anotherNumber(Plan &plan, Random &random) {
  const uint32_t before = plan.miniBatches;
  plan.miniBatches = std::vector<uint32_t>{0, before - 1, before + 1, 65}[below(random, 4)];
  if (coin(random))
    plan.goal.miniBatches = plan.miniBatches;
  return true;
}
bool goalOfAnotherNumber(Plan &plan, Random &random) {
  plan.goal.miniBatches += 1 + static_cast<int64_t>(below(random, 3));
  return true;
}
bool cacheOfAnother(Plan &plan, Random &random) {
  std::vector<uint32_t> caches;
  for (uint32_t i = 0; i < plan.buffers.size(); ++i)
    if (isCache(plan, i))
      caches.push_back(i);
  Buffer &cache = plan.buffers[pick(random, caches)];
  cache.index = plan.miniBatches > 1 && coin(random) ? other(plan, cache.index, random) : plan.miniBatches;
  return true;
}
// The tokens are published before the last of them is sampled.
bool publishEarly(Plan &plan, Random &random) {
  std::vector<Spot> of = spots(plan, [&](const Spot &s) { return stepAt(plan, s).kind == StepKind::Publish; });
  const Spot publish = pick(random, of);
  Schedule &s = scheduleAt(plan, publish);
  uint32_t sample = kNone; // the last before it
  for (uint32_t i = 0; i < publish.step; ++i)
    if (s.steps[i].kind == StepKind::Compute && s.steps[i].op == kernels::Op::Sample)
      sample = i;
  if (sample == kNone)
    return false;
  for (uint32_t i = publish.step; i > sample; --i)
    std::swap(s.steps[i], s.steps[i - 1]);
  for (Edge &edge : s.edges) { // go with their steps
    const auto moved = [&](uint32_t step) {
      return step == publish.step ? sample : step >= sample && step < publish.step ? step + 1 : step;
    };
    edge.from = moved(edge.from);
    edge.to = moved(edge.to);
  }
  std::erase_if(s.edges, [](const Edge &edge) { return edge.from >= edge.to; });
  sortEdges(s);
  return true;
}

} // namespace

const std::vector<Mutation> &miniBatchMutations() {
  static const std::vector<Mutation> all = {
      {"use another mini-batch's meta", useAnothersRange<Io::Meta>},
      {"use fewer block tables", useFewerTables},
      {"use another mini-batch's slots", useAnothersRange<Io::Sampled>},
      {"use another mini-batch's history", useAnothersRange<Io::History>},
      {"use another mini-batch's cache", useAnothersCache},
      {"use another mini-batch's activation", useAnothersLocal},
      {"a step of another mini-batch", stepOfAnother},
      {"a tail of another mini-batch", tailOfAnother},
      {"a transient of another mini-batch", localOfAnother},
      {"transients of two mini-batches in one range", localsInOneRange},
      {"caches of two mini-batches in one range", cachesInOneRange},
      {"tails of two mini-batches in one range", tailsInOneRange},
      {"another number of mini-batches", anotherNumber},
      {"a goal of another number", goalOfAnotherNumber},
      {"a cache of another mini-batch", cacheOfAnother},
      {"publish before a mini-batch is sampled", publishEarly},
  };
  return all;
}

} // namespace headrace::plan::test
