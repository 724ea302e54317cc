// SPDX-License-Identifier: Apache-2.0
//
// What may follow what: that every state a variant needs can be reached, that those of a cycle fit together, and that
// no content is dropped of which the home may be behind.
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/plan/proof/VerifyParts.h"
#include "runtime/plan/value/Cycles.h"

namespace headrace::plan {
namespace {

// All of `inner` is in `outer`, at the same addresses. Contents are sorted by address and disjoint.
bool holds(const State &outer, const State &inner) {
  size_t o = 0;
  for (const Content &content : inner.contents) {
    const uint64_t end = content.address + content.bytes;
    for (uint64_t at = content.address; at < end;) {
      while (o < outer.contents.size() && outer.contents[o].address + outer.contents[o].bytes <= at)
        ++o;
      if (o == outer.contents.size())
        return false;
      const Content &there = outer.contents[o];
      if (there.address > at || there.buffer != content.buffer ||
          there.address - there.bufferOffset != content.address - content.bufferOffset)
        return false;
      at = there.address + there.bytes;
    }
  }
  return true;
}

class StatesCheck {
public:
  StatesCheck(const Plan &plan, Report &report) : plan_(plan), report_(report) {
    for (const State &state : plan.states) {
      bool dirty = false;
      for (const Content &content : state.contents)
        dirty |= content.dirty;
      dirty_.push_back(dirty);
    }
    for (const Transition &t : plan.transitions)
      if (plan.schedules[t.schedule].fromPlacement == kNone) // else it starts without the placement's homes
        there_.insert({t.fromState, t.toState});
  }

  void transition(size_t i) {
    const Transition &t = plan_.transitions[i];
    const Schedule &schedule = plan_.schedules[t.schedule];
    const std::string name = absl::StrCat("transitions[", i, "]");
    if (!contains(t.fromState, schedule.entryState))
      add(t.schedule, name, " starts from state ", t.fromState, ", its schedule enters with ", schedule.entryState,
          otherThan(t.fromState, schedule.entryState));
    if (!contains(schedule.exitState, t.toState))
      add(t.schedule, name, " leads to state ", t.toState, otherThan(schedule.exitState, t.toState), " than state ",
          schedule.exitState, ", with which its schedule ends");
  }

  // Each phase of a cycle leaves what the next is entered with.
  void cycles() {
    std::map<CycleKey, std::vector<uint32_t>> cycles; // schedules by phase
    for (uint32_t i = 0; i < plan_.schedules.size(); ++i)
      if (const Schedule &s = plan_.schedules[i]; s.period > 1) {
        std::vector<uint32_t> &phases = cycles[cycleOf(s)];
        phases.resize(s.period);
        phases[s.phase] = i;
      }
    for (const auto &[key, phases] : cycles)
      for (size_t phase = 0; phase < phases.size(); ++phase) {
        const Schedule &s = plan_.schedules[phases[phase]];
        const uint32_t next = phases[(phase + 1) % phases.size()];
        if (s.exitState != plan_.schedules[next].entryState)
          add(phases[phase], "phase ", phase, " of ", s.period, " leaves state ", s.exitState, ", the next, schedule ",
              next, ", is entered with ", plan_.schedules[next].entryState);
      }
  }

  // What is written back only later can be written back at once.
  void flushes() {
    std::set<uint32_t> seen;
    for (uint32_t i = 0; i < plan_.schedules.size(); ++i) {
      const Schedule &s = plan_.schedules[i];
      if (s.fromPlacement != kNone && dirty_[s.entryState])
        add(i, "a change of placement is entered with state ", s.entryState,
            ", of which a home on the host may be behind");
      if (dirty_[s.exitState] && !there_.contains({s.exitState, 0}) && seen.insert(s.exitState).second)
        add(i, "leaves state ", s.exitState,
            ", of which a home on the host may be behind, and no transition leads from there to state 0");
    }
  }

  // From the empty state to the entry of any variant; from the exit of one to the entry of another of its placement,
  // but where one is of a cycle: then by way of the empty state.
  void reachable() {
    struct Ends {
      std::set<uint32_t> entries, exits, entriesOfCycles;
    };
    std::map<uint32_t, Ends> ends; // by placement
    for (const Variant &v : plan_.variants) {
      const Schedule &s = plan_.schedules[v.schedule];
      Ends &of = ends[v.placement];
      (s.period > 1 ? of.entriesOfCycles : of.entries).insert(s.entryState);
      if (s.period == 1)
        of.exits.insert(s.exitState);
    }
    for (auto &[placement, of] : ends) {
      of.exits.insert(0);
      for (const uint32_t from : of.exits)
        for (const uint32_t to : of.entries)
          reach(placement, from, to);
      for (const uint32_t to : of.entriesOfCycles)
        reach(placement, 0, to);
    }
  }

private:
  // What is in a state may be dropped, but not what its home is behind; and who is entered with that gets just it.
  bool contains(uint32_t outer, uint32_t inner) const {
    return outer == inner || (!dirty_[outer] && !dirty_[inner] && holds(plan_.states[outer], plan_.states[inner]));
  }
  // Why it does not, for messages.
  const char *otherThan(uint32_t outer, uint32_t inner) const {
    return dirty_[outer] || dirty_[inner] ? ", which is another" : ", which holds more";
  }
  void reach(uint32_t placement, uint32_t from, uint32_t to) {
    if (!there_.contains({from, to}) && !contains(from, to))
      add(kNone, "placement ", plan_.placements[placement].name, ": a variant needs state ", to,
          ", and no transition leads there from state ", from);
  }
  template <typename... Parts> void add(uint32_t schedule, const Parts &...parts) {
    report_.add(Rule::EntryExit, schedule, kNone, absl::StrCat(parts...));
  }

  const Plan &plan_;
  Report &report_;
  std::vector<bool> dirty_;                       // states with a content of which the home may be behind
  std::set<std::pair<uint32_t, uint32_t>> there_; // transitions within a placement
};

} // namespace

void verifyStates(const Plan &plan, Report &report) {
  StatesCheck check(plan, report);
  for (size_t i = 0; i < plan.transitions.size() && !report.full(); ++i)
    check.transition(i);
  check.cycles();
  check.flushes();
  check.reachable();
}

} // namespace headrace::plan
