// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {
namespace {

std::array<int64_t, 6> orderOf(const Plan &plan, const Variant &v) {
  const Schedule &s = plan.schedules[v.schedule];
  return {v.placement, v.newTokens, v.sequences, v.context, blocksInUse(plan, s), s.phase};
}

bool sameCycle(const Schedule &a, const Schedule &b) {
  const auto key = [](const Schedule &s) {
    return std::tie(s.placement, s.iterationClass, s.kvBlocks, s.maxTokens, s.maxSequences, s.maxContext);
  };
  return a.period > 1 && b.period > 1 && key(a) == key(b);
}
// Each phase of its cycle is there once.
bool phasesAreRight(const Plan &plan, const Schedule &s) {
  if (s.period <= 1)
    return s.period == 1 && s.phase == 0;
  std::multiset<uint32_t> phases;
  bool ok = s.iterationClass != IterationClass::Transition && s.period <= kMostPhases;
  for (const Schedule &other : plan.schedules)
    if (sameCycle(s, other)) {
      phases.insert(other.phase);
      ok &= other.period == s.period;
    }
  for (uint32_t phase = 0; ok && phase < s.period; ++phase)
    ok = phases.count(phase) == 1;
  return ok && phases.size() == s.period;
}

class TransitionOracle {
public:
  TransitionOracle(const Plan &plan, std::set<Rule> &rules) : plan_(plan), rules_(rules) {}

  void run() {
    for (const Transition &t : plan_.transitions) {
      const Schedule &s = plan_.schedules[t.schedule];
      breaks(!holds(t.fromState, s.entryState) || !holds(s.exitState, t.toState));
    }
    for (const Schedule &s : plan_.schedules) {
      breaks(s.fromPlacement != kNone && isDirty(s.entryState));
      breaks(isDirty(s.exitState) && !leads(s.exitState, 0)); // back to where all homes are current
      for (const Schedule &next : plan_.schedules)
        breaks(sameCycle(s, next) && next.phase == (s.phase + 1) % s.period && s.exitState != next.entryState);
    }
    const auto reached = [&](uint32_t from, uint32_t to) { return holds(from, to) || leads(from, to); };
    for (const Variant &v : plan_.variants) {
      const Schedule &to = plan_.schedules[v.schedule];
      breaks(!reached(0, to.entryState));
      for (const Variant &w : plan_.variants) {
        const Schedule &from = plan_.schedules[w.schedule];
        if (w.placement == v.placement && from.period == 1 && to.period == 1)
          breaks(!reached(from.exitState, to.entryState));
      }
    }
  }

private:
  void breaks(bool broken) {
    if (broken)
      rules_.insert(Rule::EntryExit);
  }
  std::map<uint64_t, What> paint(uint32_t state) const {
    std::map<uint64_t, What> out;
    for (const Content &c : plan_.states[state].contents)
      forEachGranule(plan_, c, false, [&](uint64_t granule, const What &what) { out[granule] = what; });
    return out;
  }
  bool isDirty(uint32_t state) const { return isDirtyState(plan_.states[state]); }
  // Nothing is dropped of a state that is ahead of its homes.
  bool holds(uint32_t outer, uint32_t inner) const {
    if (isDirty(outer) || isDirty(inner))
      return outer == inner;
    const auto has = paint(outer);
    for (const auto &[granule, what] : paint(inner))
      if (const auto it = has.find(granule); it == has.end() || it->second != what)
        return false;
    return true;
  }
  bool leads(uint32_t from, uint32_t to) const {
    return std::any_of(plan_.transitions.begin(), plan_.transitions.end(), [&](const Transition &t) {
      return t.fromState == from && t.toState == to && plan_.schedules[t.schedule].fromPlacement == kNone;
    });
  }

  const Plan &plan_;
  std::set<Rule> &rules_;
};

} // namespace

bool isDirtyState(const State &state) {
  return std::any_of(state.contents.begin(), state.contents.end(), [](const Content &c) { return c.dirty; });
}

bool cyclesAreRight(const Plan &plan) {
  bool ok = true;
  for (size_t i = 1; i < plan.variants.size(); ++i)
    ok &= orderOf(plan, plan.variants[i - 1]) < orderOf(plan, plan.variants[i]);
  for (const Schedule &s : plan.schedules)
    ok = ok && phasesAreRight(plan, s);
  return ok;
}

void addBrokenTransitionRules(const Plan &plan, std::set<Rule> &rules) { TransitionOracle(plan, rules).run(); }

} // namespace headrace::plan::test
