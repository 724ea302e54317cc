// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/Mutations.h"

#include <algorithm>

#include "tests/unit/plan/MutationParts.h"

namespace headrace::plan::test {
namespace {

Schedule &anySchedule(Plan &plan, Random &random) { return pick(random, plan.schedules); }

std::vector<uint32_t> copies(const Schedule &s) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < s.steps.size(); ++i)
    if (s.steps[i].kind == StepKind::Copy)
      out.push_back(i);
  return out;
}
// Operands of compute steps that are weights in slots.
std::vector<uint32_t> weightReads(const Plan &plan, const Schedule &s) {
  std::vector<uint32_t> out;
  for (const Step &step : s.steps)
    for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
      if (step.kind == StepKind::Compute && plan.buffer(s, s.operands[k].buffer).kind == BufferKind::Weight)
        out.push_back(k);
  return out;
}
std::vector<uint32_t> statesWithContents(const Plan &plan) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < plan.states.size(); ++i)
    if (!plan.states[i].contents.empty())
      out.push_back(i);
  return out;
}

// --- edges -----------------------------------------------------------------------------------------------------------

bool dropEdge(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  if (s.edges.empty())
    return false;
  s.edges.erase(s.edges.begin() + static_cast<std::ptrdiff_t>(below(random, s.edges.size())));
  return true;
}
// A copy that starts, or a step that computes, before what it must wait for.
bool waitForEarlier(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  if (s.edges.empty())
    return false;
  Edge &edge = pick(random, s.edges);
  std::vector<uint32_t> earlier;
  for (uint32_t i = 0; i < edge.from; ++i)
    if (s.steps[i].lane == s.steps[edge.from].lane)
      earlier.push_back(i);
  if (earlier.empty())
    return false;
  edge.from = coin(random) ? earlier.back() : pick(random, earlier);
  sortEdges(s);
  return true;
}
bool waitLater(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  if (s.edges.empty())
    return false;
  Edge &edge = pick(random, s.edges);
  std::vector<uint32_t> later;
  for (uint32_t i = edge.to + 1; i < s.steps.size(); ++i)
    if (s.steps[i].lane == s.steps[edge.to].lane)
      later.push_back(i);
  if (later.empty())
    return false;
  edge.to = coin(random) ? later.front() : pick(random, later);
  sortEdges(s);
  return true;
}
bool addEdge(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  Edge edge;
  edge.from = static_cast<uint32_t>(below(random, s.steps.size()));
  edge.to = static_cast<uint32_t>(below(random, s.steps.size()));
  edge.kind = static_cast<EdgeKind>(below(random, 4));
  if (edge.from > edge.to && below(random, 8) != 0)
    std::swap(edge.from, edge.to);
  s.edges.push_back(edge);
  sortEdges(s);
  return true;
}
bool changeEdgeKind(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  if (s.edges.empty())
    return false;
  pick(random, s.edges).kind = static_cast<EdgeKind>(below(random, 4));
  return true;
}

// --- steps -----------------------------------------------------------------------------------------------------------

// Two steps of a lane change places. Edges stay with their numbers or follow their steps.
bool swapInLane(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  const auto a = static_cast<uint32_t>(below(random, s.steps.size()));
  std::vector<uint32_t> others;
  for (uint32_t i = a + 1; i < s.steps.size() && others.size() < 4; ++i)
    if (s.steps[i].lane == s.steps[a].lane)
      others.push_back(i);
  if (others.empty())
    return false;
  const uint32_t b = pick(random, others);
  std::swap(s.steps[a], s.steps[b]);
  if (coin(random))
    for (Edge &edge : s.edges)
      for (uint32_t *end : {&edge.from, &edge.to})
        *end = *end == a ? b : *end == b ? a : *end;
  sortEdges(s);
  return true;
}
bool changeLane(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  pick(random, s.steps).lane = static_cast<Lane>(below(random, kLanes));
  return true;
}
// The same bytes are copied once more, later.
bool copyAgain(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  const std::vector<uint32_t> all = copies(s);
  if (all.size() < 2)
    return false;
  const uint32_t from = all[below(random, all.size() - 1)], to = all.back();
  s.steps[to].firstOperand = s.steps[from].firstOperand;
  s.steps[to].linkBytes = s.steps[from].linkBytes;
  return true;
}

// --- operands --------------------------------------------------------------------------------------------------------

bool truncateCopy(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  std::vector<uint32_t> all = copies(s);
  if (all.empty())
    return false;
  Step &step = s.steps[pick(random, all)];
  const bool front = coin(random);
  // From the front by a multiple of the alignment, which addresses keep.
  const uint64_t by = front ? 256 : 64 * (1 + below(random, 8));
  if (s.operands[step.firstOperand].bytes <= by)
    return false;
  for (Operand *o = &s.operands[step.firstOperand], *end = o + 2; o != end; ++o) {
    o->bytes -= by;
    if (front) {
      o->bufferOffset += by;
      o->address += by;
    }
  }
  step.linkBytes -= by;
  return true;
}
bool truncateOneSide(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  std::vector<uint32_t> all = copies(s);
  if (all.empty())
    return false;
  Operand &o = s.operands[s.steps[pick(random, all)].firstOperand + below(random, 2)];
  if (o.bytes <= 64)
    return false;
  o.bytes -= 64;
  return true;
}
bool wrongHostOffset(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  std::vector<uint32_t> all = copies(s);
  if (all.empty())
    return false;
  uint64_t &address = s.operands[s.steps[pick(random, all)].firstOperand].address;
  address = moved(random, address, 256, 16);
  return true;
}
bool copyAnotherUnit(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  std::vector<uint32_t> all = copies(s);
  if (all.empty())
    return false;
  Operand *from = &s.operands[s.steps[pick(random, all)].firstOperand];
  Operand *other = &s.operands[s.steps[pick(random, all)].firstOperand];
  const uint32_t buffer = other->buffer;
  from[1].buffer = from[0].buffer = buffer;
  from[0].address = other->address - other->bufferOffset + from[0].bufferOffset; // its home
  return true;
}
bool moveCopy(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  std::vector<uint32_t> all = copies(s);
  if (all.empty())
    return false;
  Operand &to = s.operands[s.steps[pick(random, all)].firstOperand + 1];
  to.address = coin(random) ? moved(random, to.address, 256, 64) : below(random, plan.arenaBytes / 256) * 256;
  return true;
}
// The unit is put elsewhere, and read there.
bool moveCopyAndReads(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  std::vector<uint32_t> all = copies(s);
  if (all.empty())
    return false;
  const uint32_t buffer = s.operands[s.steps[pick(random, all)].firstOperand].buffer;
  const uint64_t by = 256 * (1 + below(random, 64));
  const bool up = coin(random);
  for (Operand &o : s.operands)
    if (o.buffer == buffer && o.space == Space::Device)
      o.address = up || o.address < by ? o.address + by : o.address - by;
  return true;
}
// A weight is looked for where another of this schedule is.
bool readElsewhere(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  std::vector<uint32_t> reads = weightReads(plan, s);
  if (reads.empty())
    return false;
  Operand &o = s.operands[pick(random, reads)];
  const Operand &other = s.operands[pick(random, reads)];
  o.address = coin(random) ? other.address - other.bufferOffset + o.bufferOffset : moved(random, o.address, 256, 32);
  return true;
}
bool readAnotherBuffer(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  std::vector<uint32_t> reads = weightReads(plan, s);
  if (reads.empty())
    return false;
  s.operands[pick(random, reads)].buffer = s.operands[pick(random, reads)].buffer;
  return true;
}
bool shrinkOperand(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  std::vector<uint32_t> steps;
  for (uint32_t i = 0; i < s.steps.size(); ++i)
    if (s.steps[i].kind == StepKind::Compute)
      steps.push_back(i);
  if (steps.empty())
    return false;
  const Step &step = s.steps[pick(random, steps)];
  Operand &o = s.operands[step.firstOperand + below(random, step.operandCount)];
  if (o.bytes <= 64 || o.arg == Arg::Workspace)
    return false;
  o.bytes -= 64;
  return true;
}
bool changeAccess(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  pick(random, s.operands).access = static_cast<Access>(below(random, 3));
  return true;
}
bool changeSpace(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  pick(random, s.operands).space = static_cast<Space>(below(random, 2));
  return true;
}
bool clearDirect(Plan &plan, Random &random) {
  for (Schedule &s : plan.schedules)
    for (Step &step : s.steps)
      if (step.direct && coin(random)) {
        step.direct = false;
        return true;
      }
  for (Placement &p : plan.placements)
    for (Extent &e : p.extents)
      if (e.direct) {
        e.direct = false;
        return true;
      }
  return false;
}

// --- places ----------------------------------------------------------------------------------------------------------

bool moveLocal(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  if (s.locals.empty())
    return false;
  const size_t index = below(random, s.locals.size());
  Local &local = s.locals[index];
  local.address = coin(random) ? moved(random, local.address, 256, 32) : below(random, plan.arenaBytes / 256) * 256;
  for (Operand &o : s.operands)
    if (o.buffer == plan.buffers.size() + index)
      o.address = local.address + o.bufferOffset;
  return true;
}
// A home changes places, and everything that reads it knows.
bool moveHome(Plan &plan, Random &random) {
  const auto index = static_cast<uint32_t>(below(random, plan.placements.size()));
  Extent &e = pick(random, plan.placements[index].extents);
  const uint64_t address = moved(random, e.address, 256, 64);
  if (coin(random))
    for (Schedule &s : plan.schedules)
      for (Operand &o : s.operands)
        if (s.placement == index && o.buffer == e.buffer && o.space == e.space)
          o.address = o.address - e.address + address;
  e.address = address;
  return true;
}
bool changeSlot(Plan &plan, Random &random) {
  Placement &p = pick(random, plan.placements);
  if (p.slots.empty())
    return false;
  Slot &slot = pick(random, p.slots);
  switch (below(random, 3)) {
  case 0:
    slot.address = moved(random, slot.address, 256, 16);
    break;
  case 1:
    slot.bytes += 256 * (1 + below(random, 16));
    break;
  default:
    slot.bytes -= 256 * std::min<uint64_t>(1 + below(random, 16), slot.bytes / 256 - 1);
  }
  return true;
}
bool changeTotals(Plan &plan, Random &random) {
  switch (below(random, 4)) {
  case 0:
    plan.arenaBytes = moved(random, plan.arenaBytes, 256, 64);
    break;
  case 1:
    plan.hostBytes = moved(random, plan.hostBytes, 256, 64);
    break;
  case 2:
    plan.deviceMemory -= 256 * (1 + below(random, 64));
    break;
  default:
    plan.arenaBytes = moved(random, plan.arenaBytes, 256, 64);
    plan.deviceMemory = plan.arenaBytes;
  }
  return true;
}

// --- states, variants, transitions -----------------------------------------------------------------------------------

bool wrongState(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  (coin(random) ? s.entryState : s.exitState) = static_cast<uint32_t>(below(random, plan.states.size()));
  return true;
}
bool changeContent(Plan &plan, Random &random) {
  std::vector<uint32_t> states = statesWithContents(plan);
  if (states.empty())
    return false;
  State &state = plan.states[pick(random, states)];
  Content &c = pick(random, state.contents);
  switch (below(random, 5)) {
  case 0:
    state.contents.erase(state.contents.begin() + (&c - state.contents.data()));
    break;
  case 1:
    c.address = moved(random, c.address, 256, 32);
    break;
  case 2:
    c.buffer = static_cast<uint32_t>(below(random, plan.buffers.size()));
    break;
  case 3:
    c.bytes = moved(random, c.bytes, 64, 8);
    break;
  default:
    std::swap(c.buffer, pick(random, state.contents).buffer);
  }
  return true;
}
bool changeVariant(Plan &plan, Random &random) {
  Variant &v = pick(random, plan.variants);
  switch (below(random, 5)) {
  case 0:
    v.predictedNs -= 1 + below(random, v.predictedNs);
    break;
  case 1:
    v.computeAloneNs = moved(random, v.computeAloneNs, 1, 100);
    break;
  case 2:
    v.linkAloneNs = moved(random, v.linkAloneNs, 1, 100);
    break;
  case 3:
    pick(random, v.durationsNs) += 1 + below(random, 100);
    break;
  default:
    v.durationsNs.pop_back();
  }
  return true;
}
bool changeAmounts(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  std::vector<uint32_t> all = copies(s);
  if (all.empty())
    return false;
  s.steps[pick(random, all)].linkBytes += 64;
  return true;
}
bool changeTransition(Plan &plan, Random &random) {
  if (plan.transitions.empty())
    return false;
  Transition &t = pick(random, plan.transitions);
  switch (below(random, 4)) {
  case 0:
    plan.transitions.erase(plan.transitions.begin() + (&t - plan.transitions.data()));
    break;
  case 1:
    t.fromState = static_cast<uint32_t>(below(random, plan.states.size()));
    break;
  case 2:
    t.toState = static_cast<uint32_t>(below(random, plan.states.size()));
    break;
  default:
    t.predictedNs = below(random, t.predictedNs);
  }
  return true;
}

bool dropTransitionCopy(Plan &plan, Random &random) {
  if (plan.transitions.empty())
    return false;
  Transition &t = pick(random, plan.transitions);
  Schedule &s = plan.schedules[t.schedule];
  if (s.steps.size() < 2)
    return false;
  const auto at = static_cast<std::ptrdiff_t>(below(random, s.steps.size()));
  s.steps.erase(s.steps.begin() + at);
  t.durationsNs.erase(t.durationsNs.begin() + at);
  return true;
}
bool changeFromPlacement(Plan &plan, Random &random) {
  Schedule &s = anySchedule(plan, random);
  if (s.iterationClass != IterationClass::Transition && coin(random))
    return false; // most are refused for their structure
  const uint64_t placement = below(random, plan.placements.size() + 1);
  s.fromPlacement = placement == plan.placements.size() ? kNone : static_cast<uint32_t>(placement);
  return true;
}

} // namespace

const std::vector<Mutation> &mutations() {
  static const std::vector<Mutation> all = {{"drop an edge", dropEdge},
                                            {"wait for an earlier step", waitForEarlier},
                                            {"wait in a later step", waitLater},
                                            {"add an edge", addEdge},
                                            {"change an edge's kind", changeEdgeKind},
                                            {"swap two steps of a lane", swapInLane},
                                            {"change a step's lane", changeLane},
                                            {"copy once more", copyAgain},
                                            {"truncate a copy", truncateCopy},
                                            {"truncate one side of a copy", truncateOneSide},
                                            {"copy from a wrong host offset", wrongHostOffset},
                                            {"copy another unit", copyAnotherUnit},
                                            {"move a copy's destination", moveCopy},
                                            {"move a unit's place in its slot", moveCopyAndReads},
                                            {"read a weight elsewhere", readElsewhere},
                                            {"read another weight", readAnotherBuffer},
                                            {"shrink an operand", shrinkOperand},
                                            {"change an access", changeAccess},
                                            {"change a space", changeSpace},
                                            {"clear a direct mark", clearDirect},
                                            {"move a transient buffer", moveLocal},
                                            {"move a home", moveHome},
                                            {"move or resize a slot", changeSlot},
                                            {"change arena, budget or host bytes", changeTotals},
                                            {"change an entry or exit state", wrongState},
                                            {"change a content of a state", changeContent},
                                            {"change a variant's figures", changeVariant},
                                            {"change amounts", changeAmounts},
                                            {"change a transition", changeTransition},
                                            {"drop a copy of a transition", dropTransitionCopy},
                                            {"start from another placement", changeFromPlacement}};
  return all;
}

} // namespace headrace::plan::test
