// SPDX-License-Identifier: Apache-2.0
//
// Activation blocks at home on the host:
//
//   h2d      | copy to a slot |
//   compute                   | rebuild_kv from it | .. | act_append to the home, over the link |
#include <algorithm>

#include "kernels/Kernels.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/ActSpots.h"
#include "tests/unit/plan/MutationParts.h"
#include "tests/unit/plan/PlanParts.h"

namespace headrace::plan::test {
namespace {

using kernels::Op;

// Each brings a turn's blocks, for the rebuild_kv of that turn behind it.
std::vector<Spot> actCopies(Plan &plan) {
  return spots(plan, [&](const Spot &spot) {
    const Step &step = stepAt(plan, spot);
    return step.kind == StepKind::Copy && step.lane == Lane::H2D && isActs(plan, source(plan, spot).buffer);
  });
}
// The step with this op of a copy's layer and mini-batch.
Spot turnOf(Plan &plan, const Spot &copy, Op op) {
  const Buffer &acts = plan.buffers[source(plan, copy).buffer];
  for (const Spot &at : stepsOf(plan, {op}))
    if (at.schedule == copy.schedule && stepAt(plan, at).layer == acts.layer &&
        stepAt(plan, at).miniBatch == acts.index)
      return at;
  return {copy.schedule, kNone};
}
// Other copies of a schedule; to the same slot, to another one, or to any.
enum class Slots : uint8_t { Same, Other, Any };
std::vector<Spot> copiesBeside(Plan &plan, const Spot &copy, Slots slots) {
  std::vector<Spot> out = actCopies(plan);
  std::erase_if(out, [&](const Spot &other) {
    if (other.schedule != copy.schedule || other.step == copy.step)
      return true;
    const bool same = destination(plan, other).address == destination(plan, copy).address;
    return slots != Slots::Any && same != (slots == Slots::Same);
  });
  return out;
}
template <typename F> bool withCopy(Plan &plan, Random &random, F f) {
  std::vector<Spot> of = actCopies(plan);
  return !of.empty() && f(pick(random, of));
}
void mostlyConnect(Plan &plan, Random &random, const Spot &of) {
  if (below(random, 4) != 0)
    connect(plan, scheduleAt(plan, of));
}

// --- a slot's content ------------------------------------------------------------------------------------------------

// In the slot, not at home.
bool slotAsValues(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    const Spot reader = turnOf(plan, copy, coin(random) ? Op::RopeAppend : Op::Attention);
    std::vector<Operand *> keys;
    for (const Arg arg : {Arg::Kv, Arg::KvTail, Arg::KvRebuilt})
      if (Operand *o = part(plan, reader, arg); o != nullptr)
        keys.push_back(o);
    const Operand slot = destination(plan, copy);
    Operand &o = *pick(random, keys);
    o = {slot.buffer, Space::Device, o.access, o.arg, 0, slot.bytes, slot.address};
    return true;
  });
}
// What is in a slot of the ring, as the layer's activation blocks.
bool tailAsActs(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    const Operand *tail = part(plan, turnOf(plan, copy, Op::Attention), Arg::KvTail);
    if (tail == nullptr)
      return false;
    Operand &acts = *part(plan, turnOf(plan, copy, Op::RebuildKv), Arg::Act);
    acts = {
        coin(random) ? tail->buffer : acts.buffer, Space::Device, Access::Read, Arg::Act, 0, acts.bytes, tail->address};
    return true;
  });
}
bool rebuildFromAnotherSlot(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    std::vector<Spot> others = copiesBeside(plan, copy, Slots::Other);
    if (others.empty())
      return false;
    part(plan, turnOf(plan, copy, Op::RebuildKv), Arg::Act)->address = destination(plan, pick(random, others)).address;
    mostlyConnect(plan, random, copy);
    return true;
  });
}
bool rebuildFromHome(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    const Spot reader = turnOf(plan, copy, Op::RebuildKv);
    Operand &acts = *part(plan, reader, Arg::Act);
    acts.space = Space::Host;
    acts.address = source(plan, copy).address;
    stepAt(plan, reader).direct = coin(random);
    mostlyConnect(plan, random, copy);
    return true;
  });
}
// Another turn's blocks come to the slot; the copy says so, or says that they are the turn's own.
bool bringAnothers(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    std::vector<Spot> others = copiesBeside(plan, copy, Slots::Any);
    if (others.empty())
      return false;
    const Spot other = pick(random, others);
    source(plan, copy).address = source(plan, other).address;
    if (coin(random)) {
      source(plan, copy).buffer = destination(plan, copy).buffer = source(plan, other).buffer;
      stepAt(plan, copy).layer = stepAt(plan, other).layer;
      stepAt(plan, copy).miniBatch = stepAt(plan, other).miniBatch;
    }
    mostlyConnect(plan, random, copy);
    return true;
  });
}
// Another copy once more, to the slot, before it is rebuilt from or, which is no fault, behind that.
bool overwriteSlot(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    std::vector<Spot> others = copiesBeside(plan, copy, Slots::Any);
    if (others.empty())
      return false;
    const Spot other = pick(random, others);
    const uint32_t reader = turnOf(plan, copy, Op::RebuildKv).step;
    const uint32_t at =
        below(random, 4) != 0 ? copy.step + 1 + static_cast<uint32_t>(below(random, reader - copy.step)) : reader + 1;
    const Step step = stepAt(plan, other);
    const Operand from = source(plan, other);
    Operand to = destination(plan, other);
    to.address = destination(plan, copy).address;
    insertCopy(plan, copy.schedule, at, step, from, to);
    mostlyConnect(plan, random, copy);
    return true;
  });
}
// Before the one who had the slot has read it; in order, or for want of an edge.
bool bringTooEarly(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    std::vector<Spot> before = copiesBeside(plan, copy, Slots::Same);
    std::erase_if(before, [&](const Spot &other) { return other.step > copy.step; });
    if (before.empty())
      return false;
    const Spot reader = turnOf(plan, before.back(), Op::RebuildKv);
    Schedule &s = scheduleAt(plan, copy);
    if (coin(random) && reader.step < copy.step) {
      moveCompute(plan, copy, reader.step, coin(random));
      return true;
    }
    return std::erase_if(s.edges, [&](const Edge &e) { return e.to == copy.step && e.kind == EdgeKind::War; }) > 0;
  });
}
bool bringNothing(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    eraseStep(plan, copy);
    mostlyConnect(plan, random, copy);
    return true;
  });
}
// Rows are kept between the copy and the rebuild_kv that reads what it has brought.
bool keepBeforeRebuilding(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    const Spot reader = turnOf(plan, copy, Op::RebuildKv), keeps = turnOf(plan, copy, Op::ActAppend);
    if (keeps.step < copy.step)
      moveCompute(plan, copy, keeps.step, true);
    else if (keeps.step < turnOf(plan, copy, Op::RopeAppend).step)
      moveCompute(plan, reader, keeps.step, true);
    else // behind the append: between them
      moveCompute(plan, keeps, reader.step, true);
    return true;
  });
}
// For want of an edge: from the append to the copy behind it.
bool bringBesideAppend(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    const Spot keeps = turnOf(plan, copy, Op::ActAppend);
    Schedule &s = scheduleAt(plan, copy);
    return keeps.step < copy.step &&
           std::erase_if(s.edges, [&](const Edge &e) { return e.to == copy.step && e.from >= keeps.step; }) > 0;
  });
}

// --- the home --------------------------------------------------------------------------------------------------------

bool keepRowsElsewhere(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    const Spot keeps = turnOf(plan, copy, Op::ActAppend);
    Operand &acts = *part(plan, keeps, Arg::Act);
    switch (below(random, 4)) {
    case 0: // in the slot
      acts.space = Space::Device;
      acts.address = destination(plan, copy).address;
      stepAt(plan, keeps).direct = coin(random);
      break;
    case 1: // at another turn's home
      if (std::vector<Spot> others = copiesBeside(plan, copy, Slots::Any); !others.empty())
        acts.address = source(plan, pick(random, others)).address;
      else
        return false;
      break;
    case 2: // where the first weight is at home, or might be
      acts.address = 0;
      break;
    default:
      acts.address = moved(random, acts.address, model::kAlign, 8);
    }
    mostlyConnect(plan, random, copy);
    return true;
  });
}
bool keepRowsIndirectly(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    stepAt(plan, turnOf(plan, copy, Op::ActAppend)).direct = false;
    return true;
  });
}
bool clearDirectOfActs(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    const uint32_t acts = source(plan, copy).buffer;
    const auto only = static_cast<size_t>(below(random, plan.placements.size()));
    const bool one = coin(random);
    for (size_t p = 0; p < plan.placements.size(); ++p)
      for (Extent &e : plan.placements[p].extents)
        e.direct &= e.buffer != acts || (one && p != only);
    return true;
  });
}
// To another home, of some placements, whose steps know.
template <typename F> void moveActsHome(Plan &plan, uint32_t acts, uint64_t to, F isOf) {
  for (uint32_t p = 0; p < plan.placements.size(); ++p)
    for (Extent &e : plan.placements[p].extents)
      e.address = e.buffer == acts && isOf(p) ? to : e.address;
  for (Schedule &s : plan.schedules)
    for (Operand &o : s.operands)
      o.address = o.buffer == acts && o.space == Space::Host && isOf(s.placement) ? to : o.address;
}
// Where something else is at home; half of the time a weight, which is never written.
bool homeOverAnother(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    const uint32_t acts = source(plan, copy).buffer;
    const bool ofWeight = coin(random);
    std::vector<Extent> others;
    for (const Extent &e : plan.placements[scheduleAt(plan, copy).placement].extents)
      if (e.space == Space::Host && e.buffer != acts &&
          (plan.buffers[e.buffer].kind == BufferKind::Weight || !ofWeight))
        others.push_back(e);
    if (others.empty())
      return false;
    moveActsHome(plan, acts, pick(random, others).address / model::kAlign * model::kAlign,
                 [](uint32_t) { return true; });
    plan.hostBytes = 0; // as long as it has to be now
    for (const Placement &p : plan.placements)
      for (const Extent &e : p.extents)
        plan.hostBytes = e.space == Space::Host ? std::max(plan.hostBytes, e.address + e.bytes) : plan.hostBytes;
    return true;
  });
}
bool homeOfOnePlacement(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    if (plan.placements.size() == 1)
      return false;
    const uint32_t acts = source(plan, copy).buffer;
    const uint64_t to = model::alignUp(plan.hostBytes);
    moveActsHome(plan, acts, to, [&](uint32_t p) { return p == scheduleAt(plan, copy).placement; });
    plan.hostBytes = to + plan.buffers[acts].bytes;
    return true;
  });
}

// --- how much, and when ----------------------------------------------------------------------------------------------

bool bringTooFew(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    Step &step = stepAt(plan, copy);
    Operand &from = source(plan, copy), &to = destination(plan, copy);
    const uint64_t block = std::min(plan.actBlockBytes(), from.bytes - 64);
    switch (below(random, 4)) {
    case 0: // the first block less
      for (Operand *o : {&from, &to})
        o->bufferOffset += block, o->address += block;
      [[fallthrough]];
    case 1: // the last
      from.bytes -= block, to.bytes -= block;
      step.linkBytes = from.bytes;
      break;
    case 2: // only what the launch writes
      step.dirtyOnly = true;
      break;
    default: // and rebuild_kv makes do with it
      from.bytes -= block, to.bytes -= block;
      step.linkBytes = from.bytes;
      part(plan, turnOf(plan, copy, Op::RebuildKv), Arg::Act)->bytes = from.bytes;
    }
    return true;
  });
}
// Of the slot that a turn has, the end is elsewhere.
bool slotTooShort(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    const Operand to = destination(plan, copy);
    if (coin(random)) {
      for (Slot &slot : plan.placements[scheduleAt(plan, copy).placement].slots)
        if (slot.address == to.address && slot.bytes > model::kAlign)
          slot.bytes -= model::kAlign;
      return true;
    }
    const uint64_t by = model::kAlign * (1 + below(random, 4));
    destination(plan, copy).address += by;
    part(plan, turnOf(plan, copy, Op::RebuildKv), Arg::Act)->address += by;
    mostlyConnect(plan, random, copy);
    return true;
  });
}
bool carryActs(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    const Operand to = destination(plan, copy);
    Schedule &s = scheduleAt(plan, copy);
    State state = plan.states[s.exitState];
    if (!state.contents.empty() && coin(random))
      state.contents.clear();
    state.placement = s.placement;
    state.contents.push_back({to.buffer, 0, to.bytes, to.address, below(random, 4) == 0});
    std::sort(state.contents.begin(), state.contents.end(),
              [](const Content &a, const Content &b) { return a.address < b.address; });
    plan.states.push_back(state);
    if (coin(random))
      s.exitState = static_cast<uint32_t>(plan.states.size() - 1);
    return true;
  });
}
// Back to where they came from, or in a transition.
bool copyWhereNoneIs(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    Step step = stepAt(plan, copy);
    Operand from = source(plan, copy), to = destination(plan, copy);
    Spot at = {copy.schedule, turnOf(plan, copy, Op::RebuildKv).step + 1};
    if (coin(random)) {
      std::swap(from.space, to.space);
      std::swap(from.address, to.address);
      step.lane = Lane::D2H;
    }
    if (step.lane == Lane::H2D || below(random, 4) == 0) {
      std::vector<uint32_t> transitions;
      for (uint32_t i = 0; i < plan.schedules.size(); ++i)
        if (plan.schedules[i].iterationClass == IterationClass::Transition)
          transitions.push_back(i);
      if (transitions.empty())
        return false;
      at.schedule = pick(random, transitions);
      at.step = static_cast<uint32_t>(below(random, plan.schedules[at.schedule].steps.size() + 1));
    }
    insertCopy(plan, at.schedule, at.step, step, from, to);
    mostlyConnect(plan, random, at);
    return true;
  });
}
bool ofAnotherTurn(Plan &plan, Random &random) {
  return withCopy(plan, random, [&](const Spot &copy) {
    if (plan.miniBatches == 1)
      return false;
    stepAt(plan, copy).miniBatch = static_cast<uint8_t>((stepAt(plan, copy).miniBatch + 1) % plan.miniBatches);
    return true;
  });
}

} // namespace

const std::vector<Mutation> &actHomeMutations() {
  static const std::vector<Mutation> all = {
      {"activation blocks in a slot as keys and values", slotAsValues},
      {"a tail as activation blocks", tailAsActs},
      {"rebuild before the blocks' copy", rebuildBeforeCopy<Arg::Act>},
      {"rebuild from another slot", rebuildFromAnotherSlot},
      {"rebuild from the home", rebuildFromHome},
      {"bring another's activation blocks", bringAnothers},
      {"overwrite a slot of activation blocks", overwriteSlot},
      {"bring activation blocks too early", bringTooEarly},
      {"bring no activation blocks", bringNothing},
      {"keep rows before rebuilding", keepBeforeRebuilding},
      {"bring activation blocks beside their rows", bringBesideAppend},
      {"keep rows at another home", keepRowsElsewhere},
      {"keep rows on the host indirectly", keepRowsIndirectly},
      {"clear a direct mark of activation blocks", clearDirectOfActs},
      {"activation blocks over another home", homeOverAnother},
      {"another home of activation blocks in one placement", homeOfOnePlacement},
      {"bring too few activation blocks", bringTooFew},
      {"a slot too short for activation blocks", slotTooShort},
      {"carry activation blocks", carryActs},
      {"copy activation blocks back or in a transition", copyWhereNoneIs},
      {"a copy of another mini-batch's activation blocks", ofAnotherTurn},
  };
  return all;
}

} // namespace headrace::plan::test
