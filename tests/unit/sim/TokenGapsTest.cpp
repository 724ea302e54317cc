// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/TokenGaps.h"

#include <gtest/gtest.h>

#include "tests/unit/sim/Schedules.h"

namespace headrace::sim {
namespace {

// A link of 1 byte/ns. Placement 0 begins and ends with weight 0 in a slot (state 1) in decode, with weight 1 (state 2)
// behind prompts; placement 1 has nothing in slots.
//
//   variant  placement  class   bucket       head  tail
//   0        0          decode  2 at 16        60    40
//   1        0          decode  4 at 16        70    30
//   2        0          mixed   8 of 4 at 16  150    20
//   3        1          decode  4 at 16        90     0
//   4        1          mixed   8 of 4 at 16  160     5
//
// Transitions: within 0 from the prompts' state to decode's 7, back 9, from nothing 11 and 12; 0 -> 1 takes 1000, the
// other way 1.
class TokenGapsTest : public testing::Test {
protected:
  TokenGapsTest() {
    plan.hardware.h2dBandwidth = plan.hardware.d2hBandwidth = 1e9;
    plan.hardware.duplexBandwidth = 2e9;
    plan.buffers.resize(2);
    plan.placements.resize(2);
    plan.buffers[0].kind = plan.buffers[1].kind = plan::BufferKind::Weight;
    plan.placements[0].extents = {home(0, 512), home(1, 768)};
    plan.placements[1].extents = {home(0, 0), home(1, 256)};
    plan.states = {{0, {}}, {0, {{0, 0, 256, 0}}}, {0, {{1, 0, 256, 0}}}};
    variant(0, plan::IterationClass::Decode, {2, 2, 16}, 1, 60, 40);
    variant(0, plan::IterationClass::Decode, {4, 4, 16}, 1, 70, 30);
    variant(0, plan::IterationClass::Mixed, {8, 4, 16}, 2, 150, 20);
    variant(1, plan::IterationClass::Decode, {4, 4, 16}, 0, 90, 0);
    variant(1, plan::IterationClass::Mixed, {8, 4, 16}, 0, 160, 5);
    transition(0, 2, 1, 7);
    transition(0, 1, 2, 9);
    transition(0, 0, 1, 11);
    transition(0, 0, 2, 12);
    transition(1, 0, 0, 1000, /*from=*/0);
    transition(0, 0, 0, 1, /*from=*/1);
  }

  // Weights lie at other addresses in each placement, so that both ways between them copy.
  static plan::Extent home(uint32_t buffer, uint64_t address) {
    plan::Extent extent;
    extent.buffer = buffer;
    extent.bytes = 256;
    extent.address = 1024 + address;
    return extent;
  }
  struct Bucket {
    int64_t tokens, sequences, context;
  };
  void variant(uint32_t placement, plan::IterationClass iterationClass, Bucket bucket, uint32_t state, uint64_t head,
               uint64_t tail) {
    HandMade made;
    const uint32_t work = made.compute(head);
    made.publish(0);
    made.h2d(tail, {work});
    made.schedule.iterationClass = iterationClass;
    made.schedule.placement = placement;
    made.schedule.entryState = made.schedule.exitState = state;
    plan.schedules.push_back(made.schedule);
    plan::Variant v{bucket.tokens, bucket.sequences, bucket.context};
    v.placement = placement;
    v.schedule = static_cast<uint32_t>(plan.schedules.size() - 1);
    v.durationsNs = made.durations;
    v.predictedNs = head + tail;
    plan.variants.push_back(v);
  }
  void transition(uint32_t placement, uint32_t fromState, uint32_t toState, uint64_t ns,
                  uint32_t fromPlacement = plan::kNone) {
    HandMade made;
    made.h2d(ns);
    made.schedule.iterationClass = plan::IterationClass::Transition;
    made.schedule.placement = placement;
    made.schedule.fromPlacement = fromPlacement;
    made.schedule.entryState = fromState;
    made.schedule.exitState = toState;
    plan.schedules.push_back(made.schedule);
    plan.transitions.push_back(
        {fromState, toState, static_cast<uint32_t>(plan.schedules.size() - 1), made.durations, ns});
  }

  plan::Plan plan;
};

TEST_F(TokenGapsTest, AGapIsTheTailTheWayAndTheHead) {
  const TokenGaps gaps(plan);
  EXPECT_EQ(gaps.of(0).iterationNs, 100U);
  EXPECT_EQ(gaps.of(0).headNs, 60U);
  EXPECT_EQ(gaps.gapNs(0, 0), 100U);            // a variant behind itself: its iteration
  EXPECT_EQ(gaps.gapNs(0, 1), 40U + 70U);       // longer than either iteration takes
  EXPECT_EQ(gaps.gapNs(2, 1), 20U + 7U + 70U);  // prompts, then decode
  EXPECT_EQ(gaps.gapNs(2, 3), 20U + 1000 + 90); // to the other placement
  EXPECT_EQ(gaps.gapNs(4, 0), 5U + 1 + 11 + 60);
  EXPECT_EQ(gaps.firstNs(0, 1), 11U + 70U); // from empty slots
}

TEST_F(TokenGapsTest, OverAnotherLinkCopiesTakeLonger) {
  plan.schedules[0].steps[2].linkBytes = 40;
  const TokenGaps gaps(plan, 0.5e9); // half the profile's
  EXPECT_EQ(gaps.of(0).tailNs(), 80U);
  EXPECT_EQ(gaps.of(0).headNs, 60U);
}

TEST_F(TokenGapsTest, TheLongestOfOnePlacement) {
  const std::vector<TokenGaps::Longest> longest = TokenGaps(plan).longest({0, 1, 2});
  // 2 sequences: behind themselves 100, behind four 30 + 60, behind prompts 20 + 7 + 60, or still in the prompts'
  // variant, as 170 is not less than 100 + 7.
  EXPECT_EQ(longest[0].ns, 100U);
  EXPECT_EQ(longest[0].from, 0U);
  // 4 sequences: sequences only become fewer, so the 40 + 70 of two before four never comes. 30 + 70 behind themselves.
  EXPECT_EQ(longest[1].ns, 100U);
  EXPECT_EQ(longest[1].from, 1U);
  EXPECT_EQ(longest[2].ns, 0U); // prompts are held to nothing
}

TEST_F(TokenGapsTest, TheLongestWhereBucketsHavePlacementsOfTheirOwn) {
  // Prompts in placement 0, decode of four in placement 1, of two in placement 0.
  const std::vector<TokenGaps::Longest> longest = TokenGaps(plan).longest({0, 3, 2});
  EXPECT_EQ(longest[1].ns, 20U + 1000 + 90); // behind prompts
  EXPECT_EQ(longest[1].from, 2U);
  EXPECT_EQ(longest[1].to, 3U);
  EXPECT_EQ(longest[0].ns, 100U);
  // The other way round: 5 + 1 + 11 + 70 behind prompts, less than 30 + 70 behind itself.
  EXPECT_EQ(TokenGaps(plan).longest({1, 4})[0].ns, 100U);
  plan.variants[4].durationsNs[2] = 25; // a longer tail: 25 + 1 + 11 + 70
  EXPECT_EQ(TokenGaps(plan).longest({1, 4})[0].ns, 107U);
}

TEST_F(TokenGapsTest, AVariantThatSparesATransitionMayServeAndIsCounted) {
  // Decode of four takes 100; staying in the prompts' variant takes 103 and spares 7.
  plan.variants[2].durationsNs = {83, 0, 20};
  plan.variants[2].predictedNs = 103;
  const std::vector<TokenGaps::Longest> longest = TokenGaps(plan).longest({1, 2});
  // Behind itself, 20 + 83; the runtime goes to variant 1 once it owes what the way takes: 20 + 7 + 70 at most.
  EXPECT_EQ(longest[0].ns, 103U);
  EXPECT_EQ(longest[0].to, 2U);
}

} // namespace
} // namespace headrace::sim
