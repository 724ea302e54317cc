// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/PlacementBuilder.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace headrace::plan::test {

void PlacementBuilder::addSchedules() {
  for (const LimitOptions &limits : options_.limits)
    for (uint32_t phase = 0; phase < periodOf(limits); ++phase)
      addSchedule(limits, phase);
}

// From the empty state to each that is entered, between those of schedules that are no cycle, and from each that is
// ahead of its homes to the empty one.
void PlacementBuilder::addTransitions() {
  std::set<uint32_t> entries, exits, alone, exitsAlone;
  for (const Schedule &s : plan_.schedules)
    if (s.placement == index_ && s.iterationClass != IterationClass::Transition) {
      entries.insert(s.entryState);
      exits.insert(s.exitState);
      if (s.period == 1) {
        alone.insert(s.entryState);
        exitsAlone.insert(s.exitState);
      }
    }
  std::set<std::pair<uint32_t, uint32_t>> pairs;
  for (const uint32_t to : entries)
    pairs.insert({0, to});
  for (const uint32_t from : exitsAlone)
    for (const uint32_t to : alone)
      pairs.insert({from, to});
  std::erase_if(pairs, [&](const auto &pair) { return plan_.states[pair.second].contents.empty(); });
  for (const uint32_t from : exits)
    if (isDirty(plan_.states[from]))
      pairs.insert({from, 0});
  for (const auto &[from, to] : pairs)
    if (from != to)
      addTransition(from, to);
}

uint32_t PlacementBuilder::stateFor(State state) {
  if (state.contents.empty())
    return 0;
  const auto key = [](const Content &c) { return std::tie(c.buffer, c.bufferOffset, c.bytes, c.address, c.dirty); };
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
  size_t copy = 0, evict = 0;
  int computeKnown = kNever, copyKnown = -1;
  const auto addCopiesAfter = [&](int compute) {
    for (; evict < evicts_.size() && evicts_[evict].after <= compute; ++evict)
      addCopy(plan_, s, evicts_[evict]);
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
  if (!evicts_.empty() || s.period > 1 || plan_.residualsLeave() || actSlots() > 0 || onCpu())
    connect(plan_, s);
}

void PlacementBuilder::addSchedule(const LimitOptions &limits, uint32_t phase) {
  Schedule s;
  s.name = options_.name + (limits.iterationClass == IterationClass::Decode ? " decode" : " mixed");
  if (limits.attendsOnCpu)
    s.name += " on the cpu";
  s.placement = index_;
  s.iterationClass = limits.iterationClass;
  if (limits.withoutTail) {
    s.name += " without the tail";
    s.kvBlocks = resident();
  }
  s.phase = phase;
  s.period = periodOf(limits);
  if (s.period > 1)
    s.name += " phase " + std::to_string(phase);
  s.maxTokens = limits.tokens;
  s.maxSequences = limits.sequences;
  s.maxContext = limits.context;
  computes_.clear();
  copies_.clear();
  evicts_.clear();
  schedule_ = &s;
  limits_ = &limits;
  phase_ = phase;
  for (int64_t layer = 0; hasTail() && layer < cacheCount(); ++layer)
    slotAddress_[bufferOf(layer)] = tailAddress(phase, layer);
  addCompute();
  State entry{index_, {}};
  if (options_.rule == model::StartRule::Paper)
    addCopiesOfPaper();
  else
    addCopiesOfEager(limits, entry);
  State exit = entry;
  if (homes_ != nullptr && !onCpu())
    addCopiesOfTails(entry, exit);
  if (plan_.residualsLeave())
    addCopiesOfResiduals();
  if (actSlots() > 0)
    addCopiesOfActs();
  merge(s);
  s.entryState = stateFor(std::move(entry));
  s.exitState = stateFor(std::move(exit));
  addVariants(limits, s);
  plan_.schedules.push_back(std::move(s));
}

// Of a schedule that the plan has next.
void PlacementBuilder::addVariants(const LimitOptions &limits, const Schedule &s) {
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
}

// What is ahead of its home is written back, then what the state has is brought.
void PlacementBuilder::addTransition(uint32_t from, uint32_t to) {
  Schedule s;
  s.name = "to state " + std::to_string(to);
  s.placement = index_;
  s.iterationClass = IterationClass::Transition;
  s.exitState = to;
  const auto copy = [&](const Content &c, bool toHost) {
    PlannedCopy planned{c.buffer, c.bufferOffset, c.bytes, c.address, hostAddress(c.buffer) + c.bufferOffset};
    planned.toHost = toHost;
    planned.resizable = isCache(c.buffer) && options_.resizable;
    addCopy(plan_, s, planned);
  };
  const bool dirty = isDirty(plan_.states[from]);
  if (dirty) { // all of it must be there
    s.name += " from state " + std::to_string(from);
    s.entryState = from;
    for (const Content &c : plan_.states[from].contents)
      if (c.dirty)
        copy(c, true);
  }
  for (const Content &c : plan_.states[to].contents)
    copy(c, false);
  if (dirty)
    connect(plan_, s);
  test::addTransition(plan_, std::move(s), from, to);
}

} // namespace headrace::plan::test
