// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/CacheSpots.h"
#include "tests/unit/plan/MutationParts.h"

namespace headrace::plan::test {
namespace {

std::vector<Spot> allToHost(Plan &plan) {
  std::vector<Spot> out = evicts(plan), more = flushes(plan);
  out.insert(out.end(), more.begin(), more.end());
  return out;
}
bool isEvict(Plan &plan, uint32_t schedule, uint32_t step) {
  return plan.schedules[schedule].steps[step].kind == StepKind::Copy &&
         plan.schedules[schedule].steps[step].lane == Lane::D2H;
}

// --- order -----------------------------------------------------------------------------------------------------------

// Edges from or to copies to the host: what they write back has been written, its place is not given up, homes are not
// read before.
std::vector<std::pair<uint32_t, size_t>> evictEdges(Plan &plan, bool from, bool to) {
  std::vector<std::pair<uint32_t, size_t>> out;
  for (uint32_t i = 0; i < plan.schedules.size(); ++i)
    for (size_t e = 0; e < plan.schedules[i].edges.size(); ++e)
      if (const Edge &edge = plan.schedules[i].edges[e];
          (from && isEvict(plan, i, edge.from)) || (to && isEvict(plan, i, edge.to)))
        out.push_back({i, e});
  return out;
}
bool dropEvictEdge(Plan &plan, Random &random) {
  std::vector<std::pair<uint32_t, size_t>> edges = evictEdges(plan, true, true);
  if (edges.empty())
    return false;
  const auto [i, e] = pick(random, edges);
  plan.schedules[i].edges.erase(plan.schedules[i].edges.begin() + static_cast<std::ptrdiff_t>(e));
  return true;
}
// What waits for a copy to the host is let go when the steps or copies before it are through.
bool releaseUnderEvict(Plan &plan, Random &random) {
  std::vector<std::pair<uint32_t, size_t>> edges = evictEdges(plan, true, false);
  if (edges.empty())
    return false;
  const auto [i, e] = pick(random, edges);
  Schedule &s = plan.schedules[i];
  const Lane lane = coin(random) ? Lane::Compute : Lane::D2H;
  std::vector<uint32_t> earlier;
  for (uint32_t k = 0; k < s.edges[e].from; ++k)
    if (s.steps[k].lane == lane && s.steps[s.edges[e].to].lane != lane)
      earlier.push_back(k);
  if (earlier.empty())
    return false;
  s.edges[e].from = earlier.back();
  s.edges[e].kind = lane == Lane::Compute ? EdgeKind::Pacing : s.edges[e].kind;
  const Edge edge = s.edges[e];
  if (std::count_if(s.edges.begin(), s.edges.end(),
                    [&](const Edge &other) { return other.from == edge.from && other.to == edge.to; }) > 1)
    s.edges.erase(s.edges.begin() + static_cast<std::ptrdiff_t>(e));
  sortEdges(s);
  return true;
}
// An evict stands, and may start, before its append.
bool evictBeforeAppend(Plan &plan, Random &random) {
  std::vector<Spot> all = evicts(plan);
  std::erase_if(all, [&](const Spot &evict) {
    const int32_t layer = stepAt(plan, evict).layer;
    for (uint32_t k = 0; k < evict.step; ++k)
      if (part(plan, {evict.schedule, k}, Arg::KvTail) != nullptr && stepAt(plan, {evict.schedule, k}).layer == layer)
        return false;
    return true;
  });
  if (all.empty())
    return false;
  const Spot evict = pick(random, all);
  const Step step = stepAt(plan, evict);
  const Operand from = source(plan, evict), to = destination(plan, evict);
  uint32_t append = 0;
  while (part(plan, {evict.schedule, append}, Arg::KvTail) == nullptr ||
         stepAt(plan, {evict.schedule, append}).layer != step.layer)
    ++append;
  eraseStep(plan, evict);
  insertCopy(plan, evict.schedule, append, step, from, to);
  if (coin(random)) { // in order, at least
    Schedule &s = plan.schedules[evict.schedule];
    s.edges.push_back({append, append + 1, EdgeKind::War});
    sortEdges(s);
  }
  return true;
}
// The home is read beside the copy that writes it: right before or right behind it, in another slot.
bool readHomeBesideEvict(Plan &plan, Random &random) {
  std::vector<Spot> all = allToHost(plan);
  if (all.empty())
    return false;
  const Spot evict = pick(random, all);
  Step step = stepAt(plan, evict);
  Operand from = destination(plan, evict), to = source(plan, evict);
  from.arg = Arg::Source;
  from.access = Access::Read;
  to.arg = Arg::Destination;
  to.access = Access::Write;
  to.address = newSlot(plan, scheduleAt(plan, evict).placement, to.bytes);
  step.lane = Lane::H2D;
  step.dirtyOnly = false;
  const bool before = coin(random);
  const uint32_t at = evict.step + (before ? 0 : 1);
  insertCopy(plan, evict.schedule, at, step, from, to);
  if (coin(random)) {
    Schedule &s = scheduleAt(plan, evict);
    s.edges.push_back(before ? Edge{at, at + 1, EdgeKind::War} : Edge{at - 1, at, EdgeKind::Raw});
    sortEdges(s);
  }
  return true;
}
bool evictAgain(Plan &plan, Random &random) {
  std::vector<Spot> all = allToHost(plan);
  if (all.empty())
    return false;
  const Spot evict = pick(random, all);
  const Step step = stepAt(plan, evict);
  const Operand from = source(plan, evict), to = destination(plan, evict);
  const auto steps = static_cast<uint32_t>(scheduleAt(plan, evict).steps.size());
  insertCopy(plan, evict.schedule, coin(random) ? evict.step + 1 : steps, step, from, to);
  return true;
}

// --- what is written back, from where, to where ----------------------------------------------------------------------

bool dropEvict(Plan &plan, Random &random) {
  std::vector<Spot> all = allToHost(plan);
  std::erase_if(all, [&](const Spot &spot) { return scheduleAt(plan, spot).steps.size() < 2; });
  if (all.empty())
    return false;
  eraseStep(plan, pick(random, all));
  return true;
}
bool shortenEvict(Plan &plan, Random &random) {
  std::vector<Spot> all = allToHost(plan);
  if (all.empty())
    return false;
  const Spot evict = pick(random, all);
  const uint64_t by = coin(random) ? plan.kvBlockBytes() : 64;
  if (source(plan, evict).bytes <= by)
    return false;
  const bool front = coin(random);
  for (Operand *o : {&source(plan, evict), &destination(plan, evict)}) {
    o->bytes -= by;
    if (front) {
      o->bufferOffset += by;
      o->address += by;
    }
  }
  Step &step = stepAt(plan, evict);
  step.linkBytes -= by;
  if (front && by == 64 && coin(random))
    step.resizable = step.dirtyOnly = false;
  return true;
}
// To another layer's home, to another place in its own, or both operands are another layer's.
bool evictElsewhere(Plan &plan, Random &random) {
  std::vector<Spot> all = allToHost(plan);
  if (all.empty())
    return false;
  const Spot evict = pick(random, all);
  Operand &from = source(plan, evict), &to = destination(plan, evict);
  const Operand &other = destination(plan, pick(random, all));
  switch (below(random, 3)) {
  case 0:
    to.address = moved(random, to.address, coin(random) ? plan.kvBlockBytes() : 256, 4);
    return true;
  case 1:
    if (other.address == to.address)
      return false;
    to.address = other.address;
    return true;
  default:
    if (other.buffer == to.buffer)
      return false;
    from.buffer = to.buffer = other.buffer;
    to.address = other.address - other.bufferOffset + to.bufferOffset;
    return true;
  }
}
bool evictAnotherSlot(Plan &plan, Random &random) {
  std::vector<Spot> all = allToHost(plan);
  if (all.empty())
    return false;
  const Spot evict = pick(random, all);
  Operand &from = source(plan, evict);
  const uint64_t before = from.address;
  switch (below(random, 3)) {
  case 0:
    from.address = pick(random, plan.placements[scheduleAt(plan, evict).placement].slots).address;
    break;
  case 1:
    from.address = source(plan, pick(random, all)).address;
    break;
  default:
    from.address = moved(random, from.address, plan.kvBlockBytes(), 2);
  }
  return from.address != before;
}
// Blocks that are at home on the device, from there, or from where they would be in the slot.
bool evictResident(Plan &plan, Random &random) {
  std::vector<Spot> all = allToHost(plan);
  if (all.empty())
    return false;
  const Spot evict = pick(random, all);
  Operand &from = source(plan, evict), &to = destination(plan, evict);
  const Extent &home = *std::find_if(plan.placements[scheduleAt(plan, evict).placement].extents.begin(),
                                     plan.placements[scheduleAt(plan, evict).placement].extents.end(),
                                     [&](const Extent &e) { return e.buffer == from.buffer; });
  if (home.space != Space::Device)
    return false;
  if (coin(random)) {
    const uint64_t by = plan.kvBlockBytes();
    for (Operand *o : {&from, &to}) {
      o->bufferOffset -= by;
      o->address -= by;
    }
    return true;
  }
  const uint64_t byte0 = to.address - to.bufferOffset;
  from.bytes = to.bytes = stepAt(plan, evict).linkBytes = home.bytes;
  from.bufferOffset = to.bufferOffset = 0;
  from.address = home.address;
  from.interleaved = true;
  to.address = byte0;
  return true;
}
bool evictWeight(Plan &plan, Random &random) {
  std::vector<Spot> all = spots(plan, [&](const Spot &spot) {
    return stepAt(plan, spot).kind == StepKind::Copy && stepAt(plan, spot).lane == Lane::H2D &&
           !isCache(plan, source(plan, spot).buffer);
  });
  if (all.empty())
    return false;
  const Spot spot = pick(random, all);
  Step step = stepAt(plan, spot);
  Operand from = destination(plan, spot), to = source(plan, spot);
  std::swap(from.arg, to.arg);
  std::swap(from.access, to.access);
  step.lane = Lane::D2H;
  insertCopy(plan, spot.schedule, spot.step + 1, step, from, to);
  Schedule &s = scheduleAt(plan, spot);
  s.edges.push_back({spot.step, spot.step + 1, EdgeKind::Raw});
  sortEdges(s);
  return true;
}
bool evictInChange(Plan &plan, Random &random) {
  std::vector<uint32_t> changes;
  for (uint32_t i = 0; i < plan.schedules.size(); ++i)
    if (plan.schedules[i].fromPlacement != kNone)
      changes.push_back(i);
  std::vector<Spot> all = allToHost(plan);
  if (all.empty() || changes.empty())
    return false;
  const Spot evict = pick(random, all);
  const uint32_t change = pick(random, changes);
  Step step = stepAt(plan, evict);
  step.dirtyOnly = false;
  const Operand from = source(plan, evict), to = destination(plan, evict);
  const auto steps = static_cast<uint32_t>(plan.schedules[change].steps.size());
  if (coin(random)) {
    insertCopy(plan, change, coin(random) ? 0 : steps, step, from, to);
    return true;
  }
  // What it has brought itself, in order.
  Operand home = to, slot = from;
  home.arg = Arg::Source;
  home.access = Access::Read;
  slot.arg = Arg::Destination;
  slot.access = Access::Write;
  slot.address = newSlot(plan, plan.schedules[change].placement, slot.bytes);
  Operand back = slot;
  back.arg = Arg::Source;
  back.access = Access::Read;
  insertCopy(plan, change, steps, step, back, to);
  step.lane = Lane::H2D;
  insertCopy(plan, change, steps, step, home, slot);
  plan.schedules[change].edges.push_back({steps, steps + 1, EdgeKind::Raw});
  return true;
}

// --- marks and operands ----------------------------------------------------------------------------------------------

// Only what was written, or all, or always all of it.
bool changeAmountOfEvict(Plan &plan, Random &random) {
  std::vector<Spot> all = allToHost(plan);
  if (all.empty())
    return false;
  Step &step = stepAt(plan, pick(random, all));
  (below(random, 4) == 0 ? step.resizable : step.dirtyOnly) ^= true;
  return true;
}
// Of a copy to the device, or of a step that computes.
bool markDirtyOnly(Plan &plan, Random &random) {
  std::vector<Spot> all = spots(plan, [&](const Spot &spot) { return stepAt(plan, spot).lane != Lane::D2H; });
  std::vector<Spot> copies = cacheCopies(plan);
  if (!copies.empty() && below(random, 4) != 0)
    all = copies;
  stepAt(plan, pick(random, all)).dirtyOnly = true;
  return true;
}
// An append writes other blocks to the home than it should, or none, or also those that a copy writes back.
bool coverAnotherHome(Plan &plan, Random &random) {
  std::vector<Spot> all = spotsOf(plan, Arg::KvTail);
  std::erase_if(all, [&](const Spot &spot) { return part(plan, spot, Arg::KvTail)->access == Access::Read; });
  if (all.empty())
    return false;
  const Spot spot = pick(random, all);
  const Operand tail = *part(plan, spot, Arg::KvTail);
  const auto existing = static_cast<uint64_t>(plan.placements[scheduleAt(plan, spot).placement].kvBlocks);
  const uint64_t begin = below(random, existing), end = begin + 1 + below(random, existing - begin);
  Operand home;
  for (const Placement &p : plan.placements)
    for (const Extent &e : p.extents)
      if (e.buffer == tail.buffer && e.space == Space::Host)
        home.address = e.address - e.bufferOffset;
  home.buffer = tail.buffer;
  home.space = Space::Host;
  home.access = Access::ReadWrite;
  home.arg = Arg::KvHome;
  const uint64_t block = plan.kvBlockBytes();
  // All of the tail, half of the time: it is mirrored and written back.
  uint64_t from = begin * block, bytes = (end - begin) * block;
  Operand *old = part(plan, spot, Arg::KvHome);
  if (coin(random)) {
    from = old == nullptr ? tail.bufferOffset : old->bufferOffset;
    bytes = tail.bufferOffset + tail.bytes - from;
  }
  home.bufferOffset = from;
  home.address += from;
  home.bytes = bytes;
  if (old != nullptr) {
    const bool changes = old->bufferOffset != home.bufferOffset || old->bytes != home.bytes;
    *old = home;
    return changes;
  }
  Schedule &s = scheduleAt(plan, spot);
  Step &step = stepAt(plan, spot);
  const auto first = static_cast<std::ptrdiff_t>(step.firstOperand);
  const std::vector<Operand> operands(s.operands.begin() + first, s.operands.begin() + first + step.operandCount);
  step.firstOperand = static_cast<uint32_t>(s.operands.size());
  s.operands.insert(s.operands.end(), operands.begin(), operands.end());
  s.operands.push_back(home);
  ++step.operandCount;
  step.direct = true;
  step.linkBytes += 1024;
  return true;
}
// Where no block is on the device there is no such operand.
bool addResidentOperand(Plan &plan, Random &random) {
  std::vector<Spot> all = spotsOf(plan, Arg::KvTail);
  std::erase_if(all, [&](const Spot &spot) { return part(plan, spot, Arg::Kv) != nullptr; });
  if (all.empty())
    return false;
  Operand &o = *part(plan, pick(random, all), Arg::KvTail);
  if (coin(random))
    o.arg = Arg::Kv;
  else
    o.bufferOffset += plan.kvBlockBytes(), o.address += plan.kvBlockBytes(), o.bytes -= plan.kvBlockBytes();
  return true;
}

} // namespace

const std::vector<Mutation> &writeBackMutations() {
  static const std::vector<Mutation> all = {{"drop an edge of an evict", dropEvictEdge},
                                            {"give a slot up under an evict", releaseUnderEvict},
                                            {"evict before the append", evictBeforeAppend},
                                            {"read a home beside an evict", readHomeBesideEvict},
                                            {"evict once more", evictAgain},
                                            {"leave an evict out", dropEvict},
                                            {"evict less", shortenEvict},
                                            {"evict to another home", evictElsewhere},
                                            {"evict from another slot", evictAnotherSlot},
                                            {"evict what is at home on the device", evictResident},
                                            {"evict a weight", evictWeight},
                                            {"evict in a change of placement", evictInChange},
                                            {"change how much an evict copies", changeAmountOfEvict},
                                            {"copy only what was written", markDirtyOnly},
                                            {"append to other blocks of a home", coverAnotherHome},
                                            {"look for blocks where none are", addResidentOperand}};
  return all;
}

} // namespace headrace::plan::test
