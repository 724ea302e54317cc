// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/CacheSpots.h"
#include "tests/unit/plan/MutationParts.h"

namespace headrace::plan::test {
namespace {

// --- order -----------------------------------------------------------------------------------------------------------

// Between a tail's copy and the steps that use it, or that used its slot before.
bool dropCacheEdge(Plan &plan, Random &random) {
  std::vector<std::pair<uint32_t, size_t>> edges;
  for (uint32_t i = 0; i < plan.schedules.size(); ++i)
    for (size_t e = 0; e < plan.schedules[i].edges.size(); ++e) {
      const Edge &edge = plan.schedules[i].edges[e];
      if (part(plan, {i, edge.from}, Arg::KvTail) != nullptr || part(plan, {i, edge.to}, Arg::KvTail) != nullptr)
        edges.push_back({i, e});
    }
  if (edges.empty())
    return false;
  const auto [i, e] = pick(random, edges);
  plan.schedules[i].edges.erase(plan.schedules[i].edges.begin() + static_cast<std::ptrdiff_t>(e));
  return true;
}
// A copy into a slot before the attention that reads it is through.
bool releaseSlotEarly(Plan &plan, Random &random) {
  std::vector<std::pair<uint32_t, size_t>> edges;
  for (uint32_t i = 0; i < plan.schedules.size(); ++i)
    for (size_t e = 0; e < plan.schedules[i].edges.size(); ++e)
      if (const Edge &edge = plan.schedules[i].edges[e]; edge.from > 0 &&
                                                         isCache(plan, source(plan, {i, edge.to}).buffer) &&
                                                         part(plan, {i, edge.from}, Arg::KvTail) != nullptr)
        edges.push_back({i, e});
  if (edges.empty())
    return false;
  const auto [i, e] = pick(random, edges);
  Schedule &s = plan.schedules[i];
  std::vector<uint32_t> earlier;
  for (uint32_t k = 0; k < s.edges[e].from; ++k)
    if (s.steps[k].lane == Lane::Compute)
      earlier.push_back(k);
  if (earlier.empty())
    return false;
  s.edges[e].from = coin(random) ? earlier.back() : pick(random, earlier);
  sortEdges(s);
  return true;
}
// The slab is read while an append writes it: a copy right before or behind the append, and no edge between the two.
bool readHomeWhileWritten(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesBeforeAppend(plan);
  if (all.empty())
    return false;
  const Spot copy = pick(random, all);
  copyAside(plan, copy, appendBehind(plan, copy) + (coin(random) ? 1 : 0));
  return true;
}

// --- which copy is current -------------------------------------------------------------------------------------------

// Attention reads what was copied before the append, in order.
bool readStale(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesBeforeAppend(plan);
  std::erase_if(all, [&](const Spot &copy) { // all of the tail
    return part(plan, {copy.schedule, appendBehind(plan, copy)}, Arg::KvTail)->bytes != source(plan, copy).bytes;
  });
  if (all.empty())
    return false;
  const Spot copy = pick(random, all);
  const uint64_t address = copyAside(plan, copy, copy.step);
  Spot attention{copy.schedule, appendBehind(plan, {copy.schedule, copy.step + 1}) + 1};
  while (part(plan, attention, Arg::KvTail) == nullptr)
    ++attention.step;
  part(plan, attention, Arg::KvTail)->address = address;
  return true;
}
// The exit state says that a tail is there which was copied before the append.
bool carryStale(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesBeforeAppend(plan);
  if (all.empty())
    return false;
  const Spot copy = pick(random, all);
  const Operand from = source(plan, copy);
  const uint64_t address = copyAside(plan, copy, copy.step);
  Schedule &s = scheduleAt(plan, copy);
  State exit{s.placement, plan.states[s.exitState].contents};
  exit.contents.push_back({from.buffer, from.bufferOffset, from.bytes, address});
  s.exitState = static_cast<uint32_t>(plan.states.size());
  plan.states.push_back(std::move(exit));
  return true;
}

// --- operands of an append and of attention --------------------------------------------------------------------------

bool dropHome(Plan &plan, Random &random) {
  std::vector<Spot> all = spotsOf(plan, Arg::KvHome);
  if (all.empty())
    return false;
  const Spot spot = pick(random, all);
  Step &step = stepAt(plan, spot);
  std::swap(*part(plan, spot, Arg::KvHome), scheduleAt(plan, spot).operands[step.firstOperand + step.operandCount - 1]);
  --step.operandCount;
  step.direct = false;
  step.linkBytes = 0;
  return true;
}
bool shiftHome(Plan &plan, Random &random) {
  std::vector<Spot> all = spotsOf(plan, Arg::KvHome);
  if (all.empty())
    return false;
  Operand &o = *part(plan, pick(random, all), Arg::KvHome);
  const uint64_t block = plan.kvBlockBytes();
  switch (below(random, 3)) {
  case 0:
    o.address = moved(random, o.address, coin(random) ? block : 256, 4);
    break;
  case 1:
    o.address += block;
    o.bufferOffset += block;
    break;
  default:
    if (o.bufferOffset < block)
      return false;
    o.address -= block;
    o.bufferOffset -= block;
  }
  return true;
}
bool shortenHome(Plan &plan, Random &random) {
  std::vector<Spot> all = spotsOf(plan, Arg::KvHome);
  if (all.empty())
    return false;
  Operand &o = *part(plan, pick(random, all), Arg::KvHome);
  const uint64_t by = coin(random) ? plan.kvBlockBytes() : 64;
  if (o.bytes <= by)
    return false;
  o.bytes -= by;
  if (coin(random)) {
    o.bufferOffset += by;
    o.address += by;
  }
  return true;
}
bool beyondTheTail(Plan &plan, Random &random) {
  const uint64_t block = plan.kvBlockBytes();
  std::vector<Spot> all = coin(random) ? cacheCopies(plan) : spotsOf(plan, coin(random) ? Arg::KvTail : Arg::KvHome);
  if (all.empty())
    return false;
  const Spot spot = pick(random, all);
  Step &step = stepAt(plan, spot);
  if (step.kind == StepKind::Copy) {
    for (Operand *o = &source(plan, spot), *end = o + 2; o != end; ++o)
      o->bytes += block;
    step.linkBytes += block;
    return true;
  }
  for (const Arg arg : {Arg::KvTail, Arg::KvHome})
    if (Operand *o = part(plan, spot, arg))
      o->bytes += block;
  return true;
}
bool changePartAccess(Plan &plan, Random &random) {
  const Arg arg = coin(random) ? Arg::KvTail : Arg::KvHome;
  std::vector<Spot> all = spotsOf(plan, arg);
  if (all.empty())
    return false;
  part(plan, pick(random, all), arg)->access = static_cast<Access>(below(random, 3));
  return true;
}
bool clearDirectOfCache(Plan &plan, Random &random) {
  if (coin(random)) {
    std::vector<Spot> all = spotsOf(plan, Arg::KvHome);
    if (all.empty())
      return false;
    stepAt(plan, pick(random, all)).direct = false;
    return true;
  }
  for (Placement &p : plan.placements)
    for (Extent &e : p.extents)
      if (isCache(plan, e.buffer) && e.direct && below(random, 4) == 0) {
        e.direct = false;
        return true;
      }
  return false;
}
bool readTailElsewhere(Plan &plan, Random &random) {
  std::vector<Spot> all = spotsOf(plan, Arg::KvTail);
  if (all.empty())
    return false;
  const Spot spot = pick(random, all);
  std::vector<Slot> &slots = plan.placements[scheduleAt(plan, spot).placement].slots;
  Operand &o = *part(plan, spot, Arg::KvTail);
  o.address = coin(random) ? pick(random, slots).address : moved(random, o.address, plan.kvBlockBytes(), 2);
  return true;
}
bool resizeWrongly(Plan &plan, Random &random) {
  std::vector<Spot> all = spots(plan, [&](const Spot &spot) { return stepAt(plan, spot).kind == StepKind::Copy; });
  if (all.empty())
    return false;
  const Spot spot = pick(random, all);
  stepAt(plan, spot).resizable = true;
  Operand *o = &source(plan, spot);
  if (!isCache(plan, o->buffer))
    return true;
  // Not from a block's begin.
  for (Operand *end = o + 2; o != end; ++o) {
    o->bufferOffset += 64;
    o->address += 64;
    o->bytes -= 64;
  }
  stepAt(plan, spot).linkBytes -= 64;
  return true;
}

// --- homes -----------------------------------------------------------------------------------------------------------

bool flipInterleaved(Plan &plan, Random &random) {
  if (!isSplit(plan))
    return false;
  if (below(random, 4) == 0) {
    std::vector<Extent> &extents = pick(random, plan.placements).extents;
    Extent &e = extents[plan.kvBuffer(0) + below(random, extents.size() - plan.kvBuffer(0))];
    e.interleaved = !e.interleaved;
    return true;
  }
  static constexpr Arg kArgs[] = {Arg::Kv, Arg::KvTail, Arg::KvHome, Arg::Source, Arg::Destination};
  const Arg arg = kArgs[below(random, std::size(kArgs))];
  std::vector<Spot> all = spotsOf(plan, arg);
  if (all.empty())
    return false;
  Operand &o = *part(plan, pick(random, all), arg);
  o.interleaved = !o.interleaved;
  return true;
}
// The split of one layer, or of all, is one block off, at home or in an operand.
bool wrongSplit(Plan &plan, Random &random) {
  if (!isSplit(plan))
    return false;
  const uint64_t block = plan.kvBlockBytes();
  if (coin(random)) {
    std::vector<Spot> all = spotsOf(plan, Arg::Kv);
    if (all.empty())
      return false;
    Operand &o = *part(plan, pick(random, all), Arg::Kv);
    o.bytes = coin(random) || o.bytes == block ? o.bytes + block : o.bytes - block;
    return true;
  }
  Placement &p = pick(random, plan.placements);
  const bool all = coin(random), up = coin(random);
  const uint32_t only = plan.kvBuffer(static_cast<int64_t>(below(random, static_cast<uint64_t>(plan.model->layers))));
  for (Extent &e : p.extents) {
    if (!isCache(plan, e.buffer) || (!all && e.buffer != only))
      continue;
    const uint64_t by = up ? block : 0 - block;
    if (e.space == Space::Device) {
      e.bytes += by;
    } else {
      e.bufferOffset += by;
      e.address += by;
      e.bytes -= by;
    }
  }
  return true;
}
// The home of one layer lies on that of another, or on a weight's.
bool overlapHomes(Plan &plan, Random &random) {
  std::vector<Extent> away;
  for (const Placement &p : plan.placements)
    for (const Extent &e : p.extents)
      if (e.space == Space::Host)
        away.push_back(e);
  const Extent moves = away.empty() ? Extent{} : pick(random, away);
  if (away.empty() || !isCache(plan, moves.buffer))
    return false;
  const Extent &to = pick(random, away);
  const uint64_t by = to.address - moves.address;
  if (by == 0)
    return false;
  plan.hostBytes = 0;
  for (Placement &p : plan.placements)
    for (Extent &e : p.extents)
      if (e.space == Space::Host) {
        e.address += e.buffer == moves.buffer ? by : 0;
        plan.hostBytes = std::max(plan.hostBytes, e.address + e.bytes);
      }
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      if (o.buffer == moves.buffer && o.space == Space::Host)
        o.address += by;
  return true;
}
// A layer's tail takes its turns in another slot.
bool changeRingSlot(Plan &plan, Random &random) {
  std::vector<Spot> all = spotsOf(plan, Arg::KvTail);
  if (all.empty())
    return false;
  const Spot spot = pick(random, all);
  const uint32_t placement = scheduleAt(plan, spot).placement;
  const Operand tail = *part(plan, spot, Arg::KvTail);
  const uint64_t by = pick(random, plan.placements[placement].slots).address - tail.address;
  if (by == 0)
    return false;
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      if (s.placement == placement && o.buffer == tail.buffer && o.space == Space::Device && !o.interleaved)
        o.address += by;
  for (State &state : plan.states) {
    for (Content &c : state.contents)
      if (state.placement == placement && c.buffer == tail.buffer)
        c.address += by;
    std::sort(state.contents.begin(), state.contents.end(),
              [](const Content &a, const Content &b) { return a.address < b.address; });
  }
  return true;
}
// All blocks of a placement are elsewhere, and its steps know.
bool moveBase(Plan &plan, Random &random) {
  if (!isSplit(plan) || plan.placements.size() < 2)
    return false;
  const auto index = static_cast<uint32_t>(below(random, plan.placements.size()));
  const uint64_t units[] = {256, plan.kvBlockBytes(), plan.kvStride()};
  const uint64_t unit = units[below(random, 3)], by = coin(random) ? unit : 0 - unit;
  for (Extent &e : plan.placements[index].extents)
    if (e.interleaved)
      e.address += by;
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      if (s.placement == index && o.interleaved)
        o.address += by;
  return true;
}
bool changeBlocks(Plan &plan, Random &random) {
  if (!isSplit(plan))
    return false;
  switch (below(random, 3)) {
  case 0:
    plan.kvBlocks += coin(random) ? 1 : -1;
    return true;
  case 1:
    pick(random, plan.placements).kvBlocks += coin(random) ? 1 : -1;
    return true;
  default:
    Schedule &s = pick(random, plan.schedules);
    const auto blocks = static_cast<int64_t>(below(random, static_cast<uint64_t>(plan.kvBlocks) + 2));
    const bool changes = blocks != s.kvBlocks;
    s.kvBlocks = blocks;
    return changes;
  }
}
// A transition between placements brings a block less of a layer.
bool leaveOutBlock(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesToHomes(plan);
  if (all.empty())
    return false;
  const Spot spot = pick(random, all);
  Schedule &s = scheduleAt(plan, spot);
  Step &step = stepAt(plan, spot);
  Operand *from = &source(plan, spot), *to = from + 1;
  const uint64_t block = plan.kvBlockBytes();
  if (from->bytes > block) {
    from->bytes = to->bytes -= block;
    step.linkBytes -= block;
    if (coin(random)) {
      from->bufferOffset = to->bufferOffset += block;
      from->address += block;
      to->address += plan.kvStride();
    }
    return true;
  }
  if (s.steps.size() < 2)
    return false;
  s.steps.erase(s.steps.begin() + spot.step);
  for (Transition &t : plan.transitions)
    if (t.schedule == spot.schedule)
      t.durationsNs.erase(t.durationsNs.begin() + spot.step);
  return true;
}

} // namespace

const std::vector<Mutation> &splitMutations() {
  static const std::vector<Mutation> all = {{"drop an edge of a tail", dropCacheEdge},
                                            {"release a slot of the ring early", releaseSlotEarly},
                                            {"read a home while it is written", readHomeWhileWritten},
                                            {"read what is stale", readStale},
                                            {"carry what is stale", carryStale},
                                            {"append without the home", dropHome},
                                            {"shift a home that is appended to", shiftHome},
                                            {"shorten a home that is appended to", shortenHome},
                                            {"go beyond a tail", beyondTheTail},
                                            {"change an access of a tail or a home", changePartAccess},
                                            {"clear a direct mark of a cache", clearDirectOfCache},
                                            {"look for a tail elsewhere", readTailElsewhere},
                                            {"resize what may not be", resizeWrongly},
                                            {"flip an interleaved mark", flipInterleaved},
                                            {"split at another block", wrongSplit},
                                            {"put a home on another", overlapHomes},
                                            {"take turns in another slot", changeRingSlot},
                                            {"move all blocks of a placement", moveBase},
                                            {"change a number of blocks", changeBlocks},
                                            {"leave out a block of a transition", leaveOutBlock}};
  return all;
}

} // namespace headrace::plan::test
