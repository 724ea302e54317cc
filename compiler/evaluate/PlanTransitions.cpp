// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/PlanTransitions.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "runtime/sim/Simulator.h"

namespace headrace::compiler {
namespace {

class TransitionPlanner {
public:
  TransitionPlanner(PlanWriter &writer, Prices &prices, plan::Plan &plan)
      : writer_(writer), prices_(prices), plan_(plan) {}

  void withinPlacements() {
    const size_t schedules = plan_.schedules.size();
    for (size_t to = 0; to < schedules; ++to) {
      const uint32_t entry = plan_.schedules[to].entryState;
      std::vector<uint32_t> exits{0};
      // Into a cycle, out of one and between two lead ways by the empty state: there are many, and few are gone.
      for (size_t from = 0; from < schedules && plan_.schedules[to].period == 1; ++from)
        if (plan_.schedules[from].placement == plan_.schedules[to].placement && plan_.schedules[from].period == 1)
          exits.push_back(plan_.schedules[from].exitState);
      for (uint32_t exit : exits) {
        const bool known =
            std::any_of(plan_.transitions.begin(), plan_.transitions.end(),
                        [&](const plan::Transition &t) { return t.fromState == exit && t.toState == entry; });
        if (!known && !contains(plan_.states[exit], plan_.states[entry]))
          add(exit, entry, writer_.addTransition(exit, entry));
      }
    }
  }

  // What homes are behind of is written back before anything else is there.
  void flushes() {
    std::set<uint32_t> dirty;
    for (const plan::Schedule &schedule : plan_.schedules)
      if (isDirty(plan_.states[schedule.exitState]))
        dirty.insert(schedule.exitState);
    for (const uint32_t state : dirty)
      if (std::none_of(plan_.transitions.begin(), plan_.transitions.end(),
                       [&](const plan::Transition &t) { return t.fromState == state && t.toState == 0; }))
        add(state, 0, writer_.addTransition(state, 0));
  }

  void betweenPlacements() {
    const auto placements = static_cast<uint32_t>(plan_.placements.size());
    std::vector<uint32_t> order(placements);
    std::iota(order.begin(), order.end(), 0);
    std::vector<uint64_t> atHome;
    for (uint32_t p = 0; p < placements; ++p)
      atHome.push_back(plan::weightBytesByHome(plan_, p).device);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return atHome[a] > atHome[b]; });
    for (uint32_t i = 0; i < placements; ++i)
      for (uint32_t k = 0; k < placements; ++k) {
        const uint32_t hop = i < k ? k - i : i - k;
        const bool powerOfTwo = (hop & (hop - 1)) == 0;
        if (hop == 0 || (placements > kAllPairs && !powerOfTwo))
          continue;
        if (const uint32_t schedule = writer_.addSwitch(order[i], order[k]); schedule != plan::kNone)
          add(0, 0, schedule);
      }
  }

private:
  void add(uint32_t fromState, uint32_t toState, uint32_t index) {
    const plan::Schedule &schedule = plan_.schedules[index];
    plan::Transition transition;
    transition.fromState = fromState;
    transition.toState = toState;
    transition.schedule = index;
    transition.durationsNs = prices_.durations(plan_, schedule, {}, {});
    transition.predictedNs = sim::Simulator(schedule).run(transition.durationsNs, prices_.sharing()).iterationNs;
    plan_.transitions.push_back(std::move(transition));
  }

  PlanWriter &writer_;
  Prices &prices_;
  plan::Plan &plan_;
};

} // namespace

void addTransitions(PlanWriter &writer, Prices &prices, plan::Plan &plan) {
  TransitionPlanner planner(writer, prices, plan);
  planner.withinPlacements();
  planner.flushes();
  planner.betweenPlacements();
}

} // namespace headrace::compiler
