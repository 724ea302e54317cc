// SPDX-License-Identifier: Apache-2.0
//
// Plans whose schedules follow each other in cycles, with what is ahead of its home over their edges: what the verifier
// accepts, and one plan wrong in one way at a time.
#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/plan/WriteBackCases.h"

namespace headrace::plan::test {
namespace {

using kernels::Op;

// Decode and mixed iterations share the states of a cycle; a third schedule uses only what is on the device.
TEST(Cycles, AreAcceptedInSeveralClasses) {
  std::vector<LimitOptions> limits(3);
  limits[0].buckets = {1, 2};
  limits[1].buckets = {4};
  limits[1].iterationClass = IterationClass::Mixed;
  limits[2].buckets = {2};
  for (const WriteBack how : kWriteBacks) {
    Tails tails = cycle(1, how);
    tails.withoutTail = {false, false, true};
    const Plan plan = tailPlan(3, {tails}, limits);
    expectAccepted(plan, name(how));
    // Schedules: decode 0, mixed 0, without the tail, decode 1, mixed 1. Of a bucket first what is without the tail.
    ASSERT_EQ(plan.schedules[3].phase, 1u);
    EXPECT_EQ(plan.schedules[4].entryState, plan.schedules[3].entryState);
    std::vector<uint32_t> schedules;
    for (const Variant &v : plan.variants)
      schedules.push_back(v.schedule);
    EXPECT_EQ(schedules, (std::vector<uint32_t>{0, 3, 2, 0, 3, 1, 4}));
  }
}

TEST(Cycles, RefuseStructures) {
  for (const Broken &broken :
       std::vector<Broken>{{"no phase", Rule::Structure, "schedules[0].period is 0, expected 1 to 32",
                            [](Plan &p) { p.schedules[0].period = 0; }},
                           {"too many phases", Rule::Structure, "schedules[0].period is 33, expected 1 to 32",
                            [](Plan &p) { p.schedules[0].period = 33; }},
                           {"a phase beyond the last", Rule::Structure, "schedules[1].phase is 2, expected less than 2",
                            [](Plan &p) { p.schedules[1].phase = 2; }},
                           {"a phase of no cycle", Rule::Structure, "schedules[1].phase is 1, expected less than 1",
                            [](Plan &p) { p.schedules[1].period = 1; }},
                           {"a transition in a cycle", Rule::Structure, "schedules[2].period is 2, expected 1 to 1",
                            [](Plan &p) { p.schedules[2].period = 2; }},
                           {"a phase twice", Rule::Structure, "schedules[1] is phase 0 of 2, as schedules[0] is",
                            [](Plan &p) { p.schedules[1].phase = 0; }},
                           {"a phase that is not there", Rule::Structure,
                            "schedules[0] is of a cycle of 2, in which no schedule is phase 1",
                            [](Plan &p) { p.schedules[1].period = 3; }},
                           {"a phase of another size", Rule::Structure,
                            "schedules[1] is of a cycle of 2, in which no schedule is phase 0",
                            [](Plan &p) { p.schedules[1].maxTokens -= 1; }},
                           {"phases out of order", Rule::Structure, "variants[1] is out of order, or there twice",
                            [](Plan &p) { std::swap(p.variants[0], p.variants[1]); }},
                           {"a phase's variant twice", Rule::Structure, "variants[1] is out of order, or there twice",
                            [](Plan &p) { p.variants[1] = p.variants[0]; }}})
    expectRefused(cyclePlan(), broken);
}

// All: layer 1's tail never goes home, layer 2's at the start of the second phase.
TEST(Cycles, RefuseWhatIsLostOverAnEdge) {
  const char *left = "leaves kv.1 [2048, 6144) at 4096 in the host slab, which is behind what was in a slot on entry";
  expectRefused(cyclePlan(), {"what is not said to be ahead", Rule::StaleCopy, left,
                              [](Plan &p) { p.states[2].contents[1].dirty = false; }});
  expectRefusedAsItIs(withPhases(WriteBack::All,
                                 [](auto &phases) {
                                   phases[1].entry.pop_back();
                                   phases[1].moves.insert(phases[1].moves.begin(), {-1, false, 1, 1});
                                 }),
                      "what is not carried", Rule::StaleCopy, left);
  const char *behind = "reads kv.2 [2048, 6144) at 8192 in the host slab, which is behind what was in a slot on entry";
  expectRefusedAsItIs(withPhases(WriteBack::All, [](auto &phases) { phases[1].moves.erase(phases[1].moves.begin()); }),
                      "what is given up", Rule::StaleCopy, behind);
  expectRefusedAsItIs(withPhases(WriteBack::All, [](auto &phases) { phases[1].moves[0].dirtyOnly = true; }),
                      "the rows of the iteration before", Rule::StaleCopy, behind);
  // What was behind on entry and is written back without that is behind at the end, whatever was added.
  expectRefusedAsItIs(withPhases(WriteBack::All,
                                 [](auto &phases) {
                                   phases[0].entry[1].dirty = false;
                                   phases[1].moves.push_back({2, true, 1, 1, true});
                                 }),
                      "rows of this iteration only", Rule::StaleCopy, left);
  // The same written back whole: layer 1's tail is carried clean into the first phase.
  expectAccepted(withPhases(WriteBack::All,
                            [](auto &phases) {
                              phases[0].entry[1].dirty = false;
                              phases[1].moves.push_back({2, true, 1, 1});
                            }),
                 "written back whole");
  // What is ahead of its home is what was written last.
  expectRefusedAsItIs(
      tailPlan(2, {{1,
                    3,
                    3,
                    false,
                    {{{{0, 0, true}}, {{-1, true, 0, 0}, {-1, false, 0, 1}, {-1, false, 1, 2}, {1, true, 1, 2}}}}}}),
      "a copy that was left behind", Rule::StaleCopy, "its exit state has kv.0 [2048, 6144) at ");
}

// Of four tails in three slots 0, 2 and 3 take turns in two, 1 stays. What is brought goes to the slot that is empty,
// while what was used last goes home: each copy waits for the one the other way that left its slot, not for the last.
//
//   phase      0                                  1
//   slot 0     1 ------------------------------ | 1 ---------------------
//   slot 1     0 -- out    3 ------ out         |    2 ------ out    0 --
//   slot 2        2 ------ out         0 ------ | 0 -- out    3 ------ out
TEST(Cycles, InWhichOneTailGoesWhileAnotherComes) {
  const auto phase = [](uint32_t full, uint32_t empty) -> Phase {
    return {{{1, 0, true}, {0, full}},
            {{-1, false, 2, empty},
             {0, true, 0, full},
             {0, false, 3, full},
             {2, true, 2, empty},
             {2, false, 0, empty},
             {3, true, 3, full}}};
  };
  const Plan plan = tailPlan(4, {{1, 3, 3, false, {phase(1, 2), phase(2, 1)}}});
  expectAccepted(plan, "two slots");
  const auto waits = [&](int in, int out) { // in each phase
    for (uint32_t schedule = 0; schedule < 2; ++schedule) {
      const std::vector<Edge> &edges = plan.schedules[schedule].edges;
      if (std::none_of(edges.begin(), edges.end(), [&](const Edge &edge) {
            return edge.from == copyOf(plan, schedule, true, out) && edge.to == copyOf(plan, schedule, false, in);
          }))
        return false;
    }
    return true;
  };
  EXPECT_FALSE(waits(0, 0)); // 2 comes while 0 goes
  EXPECT_TRUE(waits(1, 0));  // into its slot: 3
  EXPECT_FALSE(waits(1, 1)); // while 2 goes
  EXPECT_TRUE(waits(2, 1));
  EXPECT_FALSE(waits(2, 2));
  for (const uint32_t schedule : {0, 1})
    for (const int pair : {0, 1})
      expectRefused(plan, {"a slot that is not left", Rule::OverwriteLive, "", [&](Plan &p) {
                             dropEdges(p, schedule, copyOf(p, schedule, true, pair),
                                       copyOf(p, schedule, false, pair + 1));
                           }});
}

TEST(Cycles, RefuseStates) {
  PlacementOptions placement;
  placement.layers = {1};
  placement.limits.front().cutUnits = 1;
  expectRefused(makePlan({tinyLlama(2), {placement}}),
                {"a weight ahead of its home", Rule::EntryExit,
                 "state 1: layers.1.qkv [0, 8448) is dirty, expected of the blocks of a cache at home on the host only",
                 [](Plan &p) { p.states[1].contents[0].dirty = true; }});
  const Plan plan = cyclePlan();
  ASSERT_EQ(plan.transitions.size(), 4u); // 0 to 1, 1 to 0, 0 to 2, 2 to 0
  for (const Broken &broken : std::vector<Broken>{
           {"a state that cannot be left", Rule::EntryExit,
            "leaves state 2, of which a home on the host may be behind, and no transition leads from there to state 0",
            [](Plan &p) { p.transitions.pop_back(); }},
           {"a state that cannot be reached", Rule::EntryExit,
            "placement 1 of 3: a variant needs state 2, and no transition leads there from state 0",
            [](Plan &p) { p.transitions.erase(p.transitions.begin() + 2); }},
           {"another state written back", Rule::EntryExit,
            "transitions[3] starts from state 1, its schedule enters with 2, which is another",
            [](Plan &p) { p.transitions[3].fromState = 1; }},
           {"another state reached", Rule::EntryExit,
            "transitions[2] leads to state 1, which is another than state 2, with which its schedule ends",
            [](Plan &p) { p.transitions[2].toState = 1; }},
           {"the same contents, but all at home", Rule::EntryExit,
            "transitions[0] leads to state 1, which is another than state 3, with which its schedule ends",
            [](Plan &p) {
              p.states.push_back(p.states[1]);
              p.states[3].contents[1].dirty = false;
              p.schedules[p.transitions[0].schedule].exitState = 3;
            }},
           {"part of what is written back", Rule::StaleCopy,
            "leaves kv.1 [2048, 6144) at 4096 in the host slab, which is behind what was in a slot on entry",
            [](Plan &p) {
              p.schedules[p.transitions[3].schedule].steps.pop_back();
              p.transitions[3].durationsNs.pop_back();
            }}})
    expectRefused(plan, broken);
  expectRefused(cyclePlan(WriteBack::Dirty),
                {"phases that do not meet", Rule::EntryExit,
                 "phase 0 of 2 leaves state 3, the next, schedule 1, is entered with 2", [](Plan &p) {
                   p.states.push_back(p.states[2]);
                   p.schedules[0].exitState = 3;
                 }});
}

// From a cycle with what is ahead of its home to a placement with all on the device, which reads the homes.
TEST(Cycles, RefuseChangesFromWhatIsAheadOfItsHome) {
  const Plan plan = tailPlan(3, {cycle(1, WriteBack::All), {3, 3, 0, true, {}}});
  expectAccepted(plan, "two placements");
  const uint32_t change = plan.transitions.back().schedule;
  ASSERT_EQ(plan.schedules[change].name, "1 of 3 to 3 of 3");
  Plan from = plan;
  from.transitions.back().fromState = 1;
  expectRefusedAsItIs(from, "from such a state", Rule::EntryExit, "starts from state 1, its schedule enters with 0");
  from.schedules[change].entryState = 1;
  std::vector<std::string> messages;
  for (const Violation &v : findViolations(from))
    messages.push_back(v.message);
  EXPECT_THAT(messages, testing::ElementsAre("reads kv.1 [2048, 6144) at 4096 in the host slab, which is behind what "
                                             "was in a slot on entry",
                                             "leaves kv.1 [2048, 6144) at home, which is behind what was in a slot on "
                                             "entry",
                                             "leaves kv.1 [2048, 6144) at 4096 in the host slab, which is behind what "
                                             "was in a slot on entry",
                                             "a change of placement is entered with state 1, of which a home on the "
                                             "host may be behind"));
}

} // namespace
} // namespace headrace::plan::test
