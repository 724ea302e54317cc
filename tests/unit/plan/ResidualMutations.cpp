// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/CacheSpots.h"
#include "tests/unit/plan/MutationParts.h"

namespace headrace::plan::test {
namespace {

bool isOne(const Plan &plan, uint32_t buffer) {
  return buffer < plan.buffers.size() && plan.buffers[buffer].kind == BufferKind::Residual;
}
std::vector<uint32_t> residuals(const Plan &plan) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < plan.buffers.size(); ++i)
    if (isOne(plan, i))
      out.push_back(i);
  return out;
}
// Another mini-batch's; kNone where there is none.
uint32_t anothers(Plan &plan, uint32_t than, Random &random) {
  std::vector<uint32_t> all = residuals(plan);
  std::erase(all, than);
  return all.empty() ? kNone : pick(random, all);
}
Extent &homeOf(Plan &plan, uint32_t placement, uint32_t residual) {
  std::vector<Extent> &extents = plan.placements[placement].extents;
  return *std::find_if(extents.begin(), extents.end(), [&](const Extent &e) { return e.buffer == residual; });
}
std::vector<Spot> copiesOf(Plan &plan, Lane lane) {
  return spots(plan, [&](const Spot &spot) {
    return stepAt(plan, spot).kind == StepKind::Copy && stepAt(plan, spot).lane == lane &&
           isOne(plan, source(plan, spot).buffer);
  });
}
std::vector<Spot> allCopies(Plan &plan) {
  std::vector<Spot> out = copiesOf(plan, Lane::H2D), back = copiesOf(plan, Lane::D2H);
  out.insert(out.end(), back.begin(), back.end());
  return out;
}
Operand &destinationOf(Plan &plan, const Spot &copy) { return (&source(plan, copy))[1]; }
bool computes(Plan &plan, const Spot &spot) { return stepAt(plan, spot).kind == StepKind::Compute; }
// Operands of steps that compute, by number in their schedule.
struct Use {
  Spot spot;
  uint32_t operand;
};
std::vector<Use> uses(Plan &plan) {
  std::vector<Use> out;
  for (const Spot &spot : spots(plan, [&](const Spot &s) { return computes(plan, s); })) {
    const Step &step = stepAt(plan, spot);
    for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
      if (isOne(plan, scheduleAt(plan, spot).operands[k].buffer))
        out.push_back({spot, k});
  }
  return out;
}
// The steps that add to it.
std::vector<Spot> sums(Plan &plan) {
  return spots(plan,
               [&](const Spot &spot) { return computes(plan, spot) && part(plan, spot, Arg::Residual) != nullptr; });
}
// A copy stands elsewhere, and its edges as far as they still go forwards.
void moveCopy(Plan &plan, const Spot &copy, uint32_t to) {
  const Step step = stepAt(plan, copy);
  const Operand from = source(plan, copy), into = destinationOf(plan, copy);
  const std::vector<Edge> edges = scheduleAt(plan, copy).edges;
  eraseStep(plan, copy);
  insertCopy(plan, copy.schedule, to, step, from, into);
  const auto now = [&](uint32_t number) {
    if (number == copy.step)
      return to;
    const uint32_t without = number - (number > copy.step ? 1 : 0);
    return without + (without >= to ? 1 : 0);
  };
  for (const Edge &edge : edges)
    if ((edge.from == copy.step || edge.to == copy.step) && now(edge.from) < now(edge.to))
      scheduleAt(plan, copy).edges.push_back({now(edge.from), now(edge.to), edge.kind});
  sortEdges(scheduleAt(plan, copy));
}

// --- order -----------------------------------------------------------------------------------------------------------

// Of an evict and what it makes way for, or of a prefetch and what it waits for or what waits for it.
bool dropEdge(Plan &plan, Random &random) {
  std::vector<std::pair<uint32_t, size_t>> all;
  for (const Spot &copy : allCopies(plan))
    for (size_t i = 0; i < scheduleAt(plan, copy).edges.size(); ++i)
      if (const Edge &edge = scheduleAt(plan, copy).edges[i]; edge.from == copy.step || edge.to == copy.step)
        all.emplace_back(copy.schedule, i);
  if (all.empty())
    return false;
  const auto [schedule, edge] = pick(random, all);
  plan.schedules[schedule].edges.erase(plan.schedules[schedule].edges.begin() + static_cast<std::ptrdiff_t>(edge));
  return true;
}
// It comes back without waiting for its way home to end.
bool prefetchUnderEvict(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesOf(plan, Lane::H2D);
  std::erase_if(all, [&](const Spot &copy) {
    const Schedule &s = scheduleAt(plan, copy);
    return std::none_of(s.edges.begin(), s.edges.end(),
                        [&](const Edge &edge) { return edge.to == copy.step && s.steps[edge.from].lane == Lane::D2H; });
  });
  if (all.empty())
    return false;
  const Spot copy = pick(random, all);
  Schedule &s = scheduleAt(plan, copy);
  std::erase_if(s.edges,
                [&](const Edge &edge) { return edge.to == copy.step && s.steps[edge.from].lane == Lane::D2H; });
  return true;
}
bool prefetchBeforeEvict(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesOf(plan, Lane::H2D);
  if (all.empty())
    return false;
  const Spot copy = pick(random, all);
  uint32_t evict = kNone;
  for (const Spot &back : copiesOf(plan, Lane::D2H))
    if (back.schedule == copy.schedule && back.step < copy.step &&
        source(plan, back).buffer == source(plan, copy).buffer)
      evict = back.step;
  if (evict == kNone)
    return false;
  moveCopy(plan, copy, evict);
  return true;
}
// Before the last sum.
bool evictEarly(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesOf(plan, Lane::D2H);
  if (all.empty())
    return false;
  const Spot evict = pick(random, all);
  uint32_t last = kNone, before = kNone; // the sum, and the step that computes before it
  for (const Spot &sum : sums(plan))
    if (sum.schedule == evict.schedule && sum.step < evict.step &&
        part(plan, sum, Arg::Y)->buffer == source(plan, evict).buffer)
      last = sum.step;
  if (last == kNone)
    return false;
  for (uint32_t i = 0; i < last; ++i)
    if (scheduleAt(plan, evict).steps[i].lane == Lane::Compute)
      before = i;
  moveCopy(plan, evict, last);
  Schedule &s = scheduleAt(plan, evict);
  std::erase_if(s.edges, [&](const Edge &edge) { return edge.to == last; });
  s.edges.push_back({before, last, EdgeKind::Raw});
  if (coin(random)) // the sum waits for it
    s.edges.push_back({last, last + 1, EdgeKind::War});
  sortEdges(s);
  return true;
}
bool leaveEvictOut(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesOf(plan, Lane::D2H);
  if (all.empty())
    return false;
  eraseStep(plan, pick(random, all));
  return true;
}
bool leavePrefetchOut(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesOf(plan, Lane::H2D);
  if (all.empty())
    return false;
  eraseStep(plan, pick(random, all));
  return true;
}

// --- whose, and where ------------------------------------------------------------------------------------------------

// A copy is of another mini-batch's, and says so or not.
bool copyAnothers(Plan &plan, Random &random) {
  std::vector<Spot> all = allCopies(plan);
  if (all.empty())
    return false;
  const Spot copy = pick(random, all);
  const uint32_t to = anothers(plan, source(plan, copy).buffer, random);
  if (to == kNone)
    return false;
  const uint64_t home = homeOf(plan, scheduleAt(plan, copy).placement, to).address;
  for (Operand *o : {&source(plan, copy), &destinationOf(plan, copy)}) {
    o->buffer = to;
    if (o->space == Space::Host)
      o->address = home;
  }
  if (below(random, 4) != 0)
    stepAt(plan, copy).miniBatch = static_cast<uint8_t>(plan.buffers[to].index);
  return true;
}
// Homes of two mini-batches, in all placements.
bool homesInOneRange(Plan &plan, Random &random) {
  std::vector<uint32_t> all = residuals(plan);
  if (all.size() < 2)
    return false;
  const uint32_t moving = pick(random, all), onto = anothers(plan, moving, random);
  for (uint32_t p = 0; p < plan.placements.size(); ++p)
    homeOf(plan, p, moving).address = homeOf(plan, p, onto).address;
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      if (o.buffer == moving && o.space == Space::Host)
        o.address = homeOf(plan, 0, onto).address;
  return true;
}
// A step reads or writes in another slot, or what is in its slot of another mini-batch's.
bool useAnotherSlot(Plan &plan, Random &random) {
  std::vector<Use> all = uses(plan);
  if (all.empty())
    return false;
  const Use use = pick(random, all);
  Schedule &s = scheduleAt(plan, use.spot);
  Operand &o = s.operands[use.operand];
  if (const uint32_t to = anothers(plan, o.buffer, random); to != kNone && below(random, 3) == 0) {
    o.buffer = to;
    return true;
  }
  std::vector<uint64_t> elsewhere;
  for (const Use &other : uses(plan))
    if (other.spot.schedule == use.spot.schedule && s.operands[other.operand].address != o.address)
      elsewhere.push_back(s.operands[other.operand].address);
  if (elsewhere.empty())
    return false;
  o.address = pick(random, elsewhere);
  return true;
}
// All steps of a schedule that use a slot use other bytes: of another slot, on its border, of no slot.
bool moveSlot(Plan &plan, Random &random) {
  std::vector<Use> all = uses(plan);
  if (all.empty())
    return false;
  const Use use = pick(random, all);
  Schedule &s = scheduleAt(plan, use.spot);
  const uint64_t from = s.operands[use.operand].address;
  uint64_t to = moved(random, from, model::kAlign, 8);
  if (const std::vector<Slot> &slots = plan.placements[s.placement].slots; coin(random))
    to = slots[below(random, slots.size())].address;
  if (to == from)
    return false;
  for (Operand &o : s.operands)
    if (isOne(plan, o.buffer) && o.space == Space::Device && o.address == from)
      o.address = to;
  return true;
}
bool homeOnDevice(Plan &plan, Random &random) {
  std::vector<uint32_t> all = residuals(plan);
  if (all.empty())
    return false;
  const auto placement = static_cast<uint32_t>(below(random, plan.placements.size()));
  Extent &home = homeOf(plan, placement, pick(random, all));
  if (below(random, 4) == 0) {
    home.direct = true;
    return true;
  }
  home.space = Space::Device;
  if (coin(random)) {
    home.address = plan.arenaBytes;
    plan.arenaBytes += home.bytes;
    plan.deviceMemory += home.bytes;
  }
  return true;
}
// In one placement or in all; its copies follow, or not.
bool moveHome(Plan &plan, Random &random) {
  std::vector<uint32_t> all = residuals(plan);
  if (all.empty())
    return false;
  const uint32_t moving = pick(random, all);
  const uint64_t to = moved(random, homeOf(plan, 0, moving).address, model::kAlign, 4);
  const auto only = static_cast<uint32_t>(below(random, 2 * plan.placements.size()));
  for (uint32_t p = 0; p < plan.placements.size(); ++p)
    if (only >= plan.placements.size() || only == p)
      homeOf(plan, p, moving).address = to;
  if (coin(random))
    for (Schedule &s : plan.schedules)
      for (Operand &o : s.operands)
        if (o.buffer == moving && o.space == Space::Host)
          o.address = to;
  return true;
}
bool moveHostSide(Plan &plan, Random &random) {
  std::vector<Spot> all = allCopies(plan);
  if (all.empty())
    return false;
  const Spot copy = pick(random, all);
  Operand &o = stepAt(plan, copy).lane == Lane::H2D ? source(plan, copy) : destinationOf(plan, copy);
  o.address = moved(random, o.address, model::kAlign, 4);
  return true;
}
// A step looks for it, or puts it, where its home is.
bool useHome(Plan &plan, Random &random) {
  std::vector<Use> all = uses(plan);
  if (all.empty())
    return false;
  const Use use = pick(random, all);
  Operand &o = scheduleAt(plan, use.spot).operands[use.operand];
  o.space = Space::Host;
  o.address = homeOf(plan, scheduleAt(plan, use.spot).placement, o.buffer).address;
  stepAt(plan, use.spot).direct |= coin(random);
  return true;
}

// --- copies ----------------------------------------------------------------------------------------------------------

bool copyPart(Plan &plan, Random &random) {
  std::vector<Spot> all = allCopies(plan);
  if (all.empty())
    return false;
  const Spot copy = pick(random, all);
  const uint64_t less = model::kAlign / (coin(random) ? 1 : 4);
  const bool behind = coin(random);
  for (Operand *o : {&source(plan, copy), &destinationOf(plan, copy)}) {
    o->bytes -= less;
    o->bufferOffset += behind ? less : 0;
    o->address += behind ? less : 0;
  }
  stepAt(plan, copy).linkBytes -= less;
  return source(plan, copy).bytes > 0;
}
// How much a launch may leave out: of rows that are not in use is no fault, of what was written before is one.
bool changeAmount(Plan &plan, Random &random) {
  std::vector<Spot> all = allCopies(plan);
  if (all.empty())
    return false;
  Step &step = stepAt(plan, pick(random, all));
  if (coin(random))
    step.resizable ^= true;
  else
    step.resizable = step.dirtyOnly = true;
  return true;
}
// Brought once more, to a slot of its own, where a step of the same turn looks for it instead: right until a sum has
// been added elsewhere.
bool readCopyAside(Plan &plan, Random &random) {
  std::vector<Spot> all = copiesOf(plan, Lane::H2D);
  if (all.empty())
    return false;
  const Spot copy = pick(random, all);
  const Operand there = destinationOf(plan, copy);
  const uint64_t aside = copyAside(plan, copy, copy.step + 1);
  Schedule &s = scheduleAt(plan, copy);
  for (Edge &edge : s.edges)
    edge.from += edge.from == copy.step ? 1 : 0;
  std::vector<uint32_t> reads;
  for (const Use &use : uses(plan))
    if (const Operand &o = s.operands[use.operand]; use.spot.schedule == copy.schedule && use.spot.step > copy.step &&
                                                    o.buffer == there.buffer && o.address == there.address &&
                                                    o.access == Access::Read)
      reads.push_back(use.operand);
  if (reads.empty())
    return false;
  s.operands[reads[below(random, std::min<size_t>(reads.size(), 4))]].address = aside;
  return true;
}
// A sum goes to a slot of its own; what reads it afterwards looks there, or not.
bool sumElsewhere(Plan &plan, Random &random) {
  std::vector<Spot> all = sums(plan);
  std::erase_if(all, [&](const Spot &sum) { return !isOne(plan, part(plan, sum, Arg::Y)->buffer); });
  if (all.empty())
    return false;
  const Spot sum = pick(random, all);
  const Operand was = *part(plan, sum, Arg::Y);
  const uint64_t to = newSlot(plan, scheduleAt(plan, sum).placement, was.bytes);
  part(plan, sum, Arg::Y)->address = to;
  const bool follow = coin(random);
  Schedule &s = scheduleAt(plan, sum);
  for (uint32_t i = sum.step + 1; i < s.steps.size() && follow; ++i) {
    for (uint32_t k = s.steps[i].firstOperand; k < s.steps[i].firstOperand + s.steps[i].operandCount; ++k) {
      Operand &o = s.operands[k];
      if (o.buffer != was.buffer || o.address != was.address || o.space != Space::Device)
        continue;
      if (s.steps[i].kind == StepKind::Copy && o.access == Access::Write)
        return true; // the next turn
      o.address = to;
    }
  }
  return true;
}
// By a transition, which finds nothing of it anywhere.
bool copyInTransition(Plan &plan, Random &random) {
  std::vector<Spot> all = allCopies(plan);
  std::vector<uint32_t> transitions;
  for (uint32_t i = 0; i < plan.schedules.size(); ++i)
    if (plan.schedules[i].iterationClass == IterationClass::Transition)
      transitions.push_back(i);
  if (all.empty() || transitions.empty())
    return false;
  const Spot copy = pick(random, all);
  const uint32_t to = pick(random, transitions);
  const Step step = stepAt(plan, copy);
  const Operand from = source(plan, copy), into = destinationOf(plan, copy);
  const auto steps = static_cast<uint32_t>(plan.schedules[to].steps.size());
  insertCopy(plan, to, coin(random) ? 0 : steps, step, from, into);
  return true;
}
bool keepOne(Plan &plan, Random &random) {
  std::vector<uint32_t> all = residuals(plan), states;
  for (uint32_t i = 1; i < plan.states.size(); ++i)
    states.push_back(i);
  if (all.empty() || states.empty())
    return false;
  State &state = plan.states[pick(random, states)];
  const uint32_t buffer = pick(random, all);
  state.contents.push_back({buffer, 0, plan.buffers[buffer].bytes,
                            newSlot(plan, state.placement, plan.buffers[buffer].bytes), below(random, 4) == 0});
  return true;
}

// --- what they are ---------------------------------------------------------------------------------------------------

// All that is of it is larger or smaller.
bool resize(Plan &plan, Random &random) {
  std::vector<uint32_t> all = residuals(plan);
  if (all.empty())
    return false;
  const uint32_t changed = pick(random, all);
  const uint64_t bytes = moved(random, plan.buffers[changed].bytes, model::kAlign, 1);
  if (bytes == 0)
    return false;
  plan.buffers[changed].bytes = bytes;
  for (uint32_t p = 0; p < plan.placements.size(); ++p)
    homeOf(plan, p, changed).bytes = bytes;
  for (Schedule &s : plan.schedules) {
    for (Operand &o : s.operands)
      if (o.buffer == changed)
        o.bytes = bytes;
    for (Step &step : s.steps)
      if (step.kind == StepKind::Copy && s.operands[step.firstOperand].buffer == changed)
        step.linkBytes = bytes;
  }
  return true;
}
bool changeWhose(Plan &plan, Random &random) {
  std::vector<uint32_t> all = residuals(plan);
  if (all.empty())
    return false;
  Buffer &buffer = plan.buffers[pick(random, all)];
  switch (below(random, 4)) {
  case 0:
    buffer.index = coin(random) ? plan.miniBatches : static_cast<uint32_t>(below(random, plan.miniBatches));
    break;
  case 1:
    buffer.layer = 0;
    break;
  case 2:
    buffer.kind = coin(random) ? BufferKind::Act : BufferKind::Kv;
    buffer.layer = 0;
    break;
  default:
    buffer.name += "x";
  }
  return true;
}
// A part of a residual, or a transient of the same step in its stead.
bool usePart(Plan &plan, Random &random) {
  std::vector<Use> all = uses(plan);
  if (all.empty())
    return false;
  const Use use = pick(random, all);
  Schedule &s = scheduleAt(plan, use.spot);
  Operand &o = s.operands[use.operand];
  const Step &step = stepAt(plan, use.spot);
  std::vector<Operand> transients;
  for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
    if (s.operands[k].buffer >= plan.buffers.size() && s.operands[k].bytes >= o.bytes)
      transients.push_back(s.operands[k]);
  if (!transients.empty() && coin(random)) {
    const Operand &local = pick(random, transients);
    o.buffer = local.buffer;
    o.address = local.address;
    o.bytes = local.bytes;
    return true;
  }
  o.bytes -= 64;
  if (coin(random)) {
    o.bufferOffset += 64;
    o.address += 64;
  }
  return true;
}

} // namespace

const std::vector<Mutation> &residualMutations() {
  static const std::vector<Mutation> all = {{"drop an edge of a residual's copy", dropEdge},
                                            {"prefetch a residual under its evict", prefetchUnderEvict},
                                            {"prefetch a residual before its evict", prefetchBeforeEvict},
                                            {"evict a residual before its last sum", evictEarly},
                                            {"leave a residual's evict out", leaveEvictOut},
                                            {"leave a residual's prefetch out", leavePrefetchOut},
                                            {"copy another mini-batch's residual", copyAnothers},
                                            {"residuals of two mini-batches in one home", homesInOneRange},
                                            {"use another residual's slot", useAnotherSlot},
                                            {"move a residual in its slot", moveSlot},
                                            {"a residual at home on the device", homeOnDevice},
                                            {"move a residual's home", moveHome},
                                            {"copy a residual to another home", moveHostSide},
                                            {"use a residual at its home", useHome},
                                            {"copy a part of a residual", copyPart},
                                            {"change how much of a residual is copied", changeAmount},
                                            {"read a residual's copy aside", readCopyAside},
                                            {"add to a residual elsewhere", sumElsewhere},
                                            {"copy a residual in a transition", copyInTransition},
                                            {"keep a residual between iterations", keepOne},
                                            {"a residual of another size", resize},
                                            {"a residual of another kind", changeWhose},
                                            {"use a part of a residual", usePart}};
  return all;
}

} // namespace headrace::plan::test
