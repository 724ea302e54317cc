// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/PlacementBuilder.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace headrace::plan::test {

void PlacementBuilder::addSchedules() {
  for (const LimitOptions &limits : options_.limits)
    addSchedule(limits);
}

void PlacementBuilder::addTransitions() {
  std::set<uint32_t> entries, exits = {0};
  for (const Schedule &s : plan_.schedules)
    if (s.placement == index_ && s.iterationClass != IterationClass::Transition) {
      entries.insert(s.entryState);
      exits.insert(s.exitState);
    }
  for (const uint32_t from : exits)
    for (const uint32_t to : entries)
      if (from != to && !plan_.states[to].contents.empty())
        addTransition(from, to);
}

uint32_t PlacementBuilder::stateFor(State state) {
  if (state.contents.empty())
    return 0;
  const auto key = [](const Content &c) { return std::tie(c.buffer, c.bufferOffset, c.bytes, c.address); };
  for (uint32_t i = 0; i < plan_.states.size(); ++i)
    if (plan_.states[i].placement == index_ &&
        std::equal(plan_.states[i].contents.begin(), plan_.states[i].contents.end(), state.contents.begin(),
                   state.contents.end(), [&](const Content &a, const Content &b) { return key(a) == key(b); }))
      return i;
  plan_.states.push_back(std::move(state));
  return static_cast<uint32_t>(plan_.states.size() - 1);
}

// Copies stand as early as they may start. An edge is left out if the lane has waited for as much before.
void PlacementBuilder::merge(Schedule &s) {
  std::vector<uint32_t> computeStep(computes_.size()), copyStep(copies_.size());
  size_t copy = 0;
  int computeKnown = kNever, copyKnown = -1;
  const auto addCopiesAfter = [&](int compute) {
    for (; copy < copies_.size() && copies_[copy].after <= compute; ++copy) {
      const PlannedCopy &c = copies_[copy];
      copyStep[copy] = static_cast<uint32_t>(s.steps.size());
      if (c.after > computeKnown) {
        computeKnown = c.after;
        s.edges.push_back({computeStep[c.after], copyStep[copy], EdgeKind::War});
      }
      addCopy(plan_, s, c);
    }
  };
  addCopiesAfter(kNever);
  for (size_t i = 0; i < computes_.size(); ++i) {
    computeStep[i] = static_cast<uint32_t>(s.steps.size());
    if (computes_[i].waitsFor > copyKnown) {
      copyKnown = computes_[i].waitsFor;
      s.edges.push_back({copyStep[copyKnown], computeStep[i], EdgeKind::Raw});
    }
    addStep(s, computes_[i].step, computes_[i].operands);
    addCopiesAfter(static_cast<int>(i));
  }
}

void PlacementBuilder::addSchedule(const LimitOptions &limits) {
  Schedule s;
  s.name = options_.name + (limits.iterationClass == IterationClass::Decode ? " decode" : " mixed");
  s.placement = index_;
  s.iterationClass = limits.iterationClass;
  if (limits.withoutTail) {
    s.name += " without the tail";
    s.kvBlocks = resident();
  }
  s.maxTokens = limits.tokens;
  s.maxSequences = limits.sequences;
  s.maxContext = limits.context;
  computes_.clear();
  copies_.clear();
  schedule_ = &s;
  limits_ = &limits;
  addCompute();
  State prefix{index_, {}};
  if (options_.rule == model::StartRule::Paper)
    addCopiesOfPaper();
  else
    addCopiesOfEager(limits, prefix);
  if (homes_ != nullptr)
    addCopiesOfTails(prefix);
  merge(s);
  s.entryState = s.exitState = stateFor(std::move(prefix));
  for (const int64_t tokens : limits.buckets) {
    Variant v;
    v.newTokens = tokens;
    v.sequences = std::min(tokens, limits.sequences);
    v.context = limits.context;
    v.placement = index_;
    v.schedule = static_cast<uint32_t>(plan_.schedules.size());
    for (const Step &step : s.steps)
      v.durationsNs.push_back(step.lane == Lane::Compute ? 500 + 10 * static_cast<uint64_t>(tokens)
                                                         : 100 + step.linkBytes / 8);
    std::tie(v.predictedNs, v.computeAloneNs, v.linkAloneNs) = times(s, v.durationsNs);
    plan_.variants.push_back(std::move(v));
  }
  plan_.schedules.push_back(std::move(s));
}

void PlacementBuilder::addTransition(uint32_t from, uint32_t to) {
  Schedule s;
  s.name = "to state " + std::to_string(to);
  s.placement = index_;
  s.iterationClass = IterationClass::Transition;
  s.exitState = to;
  for (const Content &c : plan_.states[to].contents)
    addCopy(plan_, s, part(c.buffer, c.bufferOffset, c.bytes, kNever));
  test::addTransition(plan_, std::move(s), from, to);
}

} // namespace headrace::plan::test
