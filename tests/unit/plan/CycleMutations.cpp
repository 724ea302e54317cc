// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/unit/plan/CacheSpots.h"
#include "tests/unit/plan/MutationParts.h"
#include "tests/unit/plan/PlanParts.h"

namespace headrace::plan::test {
namespace {

std::vector<uint32_t> schedulesOfCycles(const Plan &plan) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < plan.schedules.size(); ++i)
    if (plan.schedules[i].period > 1)
      out.push_back(i);
  return out;
}
std::vector<uint32_t> dirtyStates(const Plan &plan) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < plan.states.size(); ++i)
    if (isDirty(plan.states[i]))
      out.push_back(i);
  return out;
}
std::vector<size_t> flushTransitions(const Plan &plan) {
  std::vector<size_t> out;
  for (size_t i = 0; i < plan.transitions.size(); ++i)
    if (isDirty(plan.states[plan.transitions[i].fromState]))
      out.push_back(i);
  return out;
}

// --- phases ----------------------------------------------------------------------------------------------------------

bool changePhase(Plan &plan, Random &random) {
  std::vector<uint32_t> all = schedulesOfCycles(plan);
  if (all.empty())
    return false;
  Schedule &s = plan.schedules[pick(random, all)];
  const uint32_t before = s.phase;
  switch (below(random, 3)) {
  case 0:
    s.phase = static_cast<uint32_t>(below(random, s.period + 1));
    break;
  case 1:
    s.phase = coin(random) ? kMostPhases : 0xffffffff;
    break;
  default:
    s.phase = (s.phase + 1) % s.period;
  }
  return s.phase != before;
}
// Of one schedule, or of all of them.
bool changePeriod(Plan &plan, Random &random) {
  std::vector<uint32_t> all = schedulesOfCycles(plan);
  if (all.empty())
    return false;
  const uint32_t period = plan.schedules[pick(random, all)].period;
  static constexpr uint32_t kPeriods[] = {0, 1, kMostPhases, kMostPhases + 1};
  const uint32_t to = coin(random) ? kPeriods[below(random, 4)] : period + (coin(random) ? 1 : -1);
  const uint32_t only = pick(random, all);
  const bool every = coin(random);
  for (const uint32_t i : all)
    if (i == only || every)
      plan.schedules[i].period = to;
  return true;
}
// A transition, or an iteration that is none of a cycle, says that it is.
bool makeACycle(Plan &plan, Random &random) {
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < plan.schedules.size(); ++i)
    if (plan.schedules[i].period == 1)
      all.push_back(i);
  if (all.empty())
    return false;
  Schedule &s = plan.schedules[pick(random, all)];
  s.period = static_cast<uint32_t>(below(random, 4));
  s.phase = static_cast<uint32_t>(below(random, 2));
  return s.period != 1 || s.phase != 0;
}
// Two phases change their numbers, or all move on by one; variants follow, or do not.
bool renumberPhases(Plan &plan, Random &random) {
  std::vector<uint32_t> all = schedulesOfCycles(plan);
  if (all.empty())
    return false;
  const Schedule like = plan.schedules[pick(random, all)];
  const bool stays = coin(random);
  const auto other = static_cast<uint32_t>((like.phase + 1 + below(random, like.period - 1)) % like.period);
  for (const uint32_t i : all) {
    Schedule &s = plan.schedules[i];
    if (s.placement != like.placement || s.iterationClass != like.iterationClass || s.period != like.period)
      continue;
    if (stays)
      s.phase = (s.phase + 1) % s.period;
    else if (s.phase == like.phase || s.phase == other)
      s.phase = s.phase == other ? like.phase : other;
  }
  if (coin(random))
    sortVariants(plan);
  return true;
}
// Of one bucket: each has the other's schedule.
bool swapVariants(Plan &plan, Random &random) {
  std::vector<size_t> all;
  for (size_t i = 0; i + 1 < plan.variants.size(); ++i)
    if (plan.schedules[plan.variants[i].schedule].period > 1 &&
        plan.variants[i].newTokens == plan.variants[i + 1].newTokens &&
        plan.schedules[plan.variants[i + 1].schedule].period > 1)
      all.push_back(i);
  if (all.empty())
    return false;
  const size_t i = pick(random, all);
  std::swap(plan.variants[i], plan.variants[i + 1]);
  return true;
}

// --- what is carried over an edge ------------------------------------------------------------------------------------

bool changeStateOfCycle(Plan &plan, Random &random) {
  std::vector<uint32_t> all = schedulesOfCycles(plan);
  if (all.empty())
    return false;
  Schedule &s = plan.schedules[pick(random, all)];
  uint32_t &state = coin(random) ? s.entryState : s.exitState;
  const uint32_t before = state;
  if (coin(random)) { // the same once more, with another number
    state = static_cast<uint32_t>(plan.states.size());
    plan.states.push_back(plan.states[before]);
  } else {
    state = static_cast<uint32_t>(below(random, plan.states.size()));
  }
  return state != before;
}
// What an iteration begins with is no longer ahead of its home, or is so now.
bool flipDirty(Plan &plan, Random &random) {
  std::vector<uint32_t> all = dirtyStates(plan);
  if (all.empty() || below(random, 3) == 0) {
    all.clear();
    for (uint32_t i = 0; i < plan.states.size(); ++i)
      if (!plan.states[i].contents.empty())
        all.push_back(i);
  }
  if (all.empty())
    return false;
  Content &c = pick(random, plan.states[pick(random, all)].contents);
  c.dirty = !c.dirty;
  return true;
}
// The exit state alone is no longer ahead, or so is the entry state alone.
bool flipDirtyOfOne(Plan &plan, Random &random) {
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < plan.schedules.size(); ++i)
    if (isDirty(plan.states[plan.schedules[i].entryState]) || isDirty(plan.states[plan.schedules[i].exitState]))
      all.push_back(i);
  if (all.empty())
    return false;
  Schedule &s = plan.schedules[pick(random, all)];
  uint32_t &state = coin(random) ? s.entryState : s.exitState;
  if (!isDirty(plan.states[state]))
    return false;
  State clean = plan.states[state];
  for (Content &c : clean.contents)
    c.dirty = false;
  state = static_cast<uint32_t>(plan.states.size());
  plan.states.push_back(std::move(clean));
  return true;
}
bool markWeightDirty(Plan &plan, Random &random) {
  std::vector<Content *> all;
  for (State &state : plan.states)
    for (Content &c : state.contents)
      if (!isCache(plan, c.buffer))
        all.push_back(&c);
  if (all.empty())
    return false;
  pick(random, all)->dirty = true;
  return true;
}

// --- transitions -----------------------------------------------------------------------------------------------------

bool dropFlush(Plan &plan, Random &random) {
  std::vector<size_t> all = flushTransitions(plan);
  if (all.empty())
    return false;
  plan.transitions.erase(plan.transitions.begin() + static_cast<std::ptrdiff_t>(pick(random, all)));
  return true;
}
bool retargetFlush(Plan &plan, Random &random) {
  std::vector<size_t> all = flushTransitions(plan);
  if (all.empty())
    return false;
  Transition &t = plan.transitions[pick(random, all)];
  const auto state = static_cast<uint32_t>(below(random, plan.states.size()));
  switch (below(random, 3)) {
  case 0:
    t.fromState = state;
    return true;
  case 1:
    t.toState = state;
    return true;
  default:
    plan.schedules[t.schedule].entryState = state;
    return true;
  }
}
bool shortenFlush(Plan &plan, Random &random) {
  std::vector<Spot> all = flushes(plan);
  if (all.empty())
    return false;
  const Spot flush = pick(random, all);
  const uint64_t block = plan.kvBlockBytes();
  Operand *from = &source(plan, flush);
  if (from->bytes <= block || coin(random)) {
    if (scheduleAt(plan, flush).steps.size() < 2)
      return false;
    eraseStep(plan, flush);
    return true;
  }
  const bool front = coin(random);
  for (Operand *o : {from, from + 1}) {
    o->bytes -= block;
    if (front) {
      o->bufferOffset += block;
      o->address += block;
    }
  }
  stepAt(plan, flush).linkBytes -= block;
  return true;
}
bool changeFromDirty(Plan &plan, Random &random) {
  std::vector<uint32_t> dirty = dirtyStates(plan);
  std::vector<size_t> changes;
  for (size_t i = 0; i < plan.transitions.size(); ++i)
    if (plan.schedules[plan.transitions[i].schedule].fromPlacement != kNone)
      changes.push_back(i);
  if (dirty.empty() || changes.empty())
    return false;
  Transition &t = plan.transitions[pick(random, changes)];
  Schedule &s = plan.schedules[t.schedule];
  const uint32_t state = pick(random, dirty);
  if (plan.states[state].placement == s.fromPlacement) {
    t.fromState = state;
    s.entryState = coin(random) ? state : s.entryState;
  } else {
    t.toState = s.exitState = state;
  }
  return true;
}

} // namespace

const std::vector<Mutation> &cycleMutations() {
  static const std::vector<Mutation> all = {{"change a phase", changePhase},
                                            {"change a period", changePeriod},
                                            {"make a cycle of what is none", makeACycle},
                                            {"renumber phases", renumberPhases},
                                            {"swap variants of two phases", swapVariants},
                                            {"change a state of a cycle", changeStateOfCycle},
                                            {"flip what is ahead of its home", flipDirty},
                                            {"enter or leave clean", flipDirtyOfOne},
                                            {"say that a weight is ahead of its home", markWeightDirty},
                                            {"drop a flush", dropFlush},
                                            {"flush from or to another state", retargetFlush},
                                            {"shorten a flush", shortenFlush},
                                            {"change the placement with a state ahead", changeFromDirty}};
  return all;
}

} // namespace headrace::plan::test
