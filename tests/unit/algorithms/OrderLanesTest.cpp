// SPDX-License-Identifier: Apache-2.0
#include <initializer_list>

#include "passes/algorithms/Program.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::algorithms {
namespace {

using Kind = Program::Kind;
using testing::ElementsAre;

// Ops one behind the other; each makes at most one version.
class Ops {
public:
  Program program;

  uint32_t add(Kind kind, std::initializer_list<uint32_t> uses = {}, Lane lane = Lane::Compute) {
    Program::Op op;
    op.kind = kind;
    op.lane = lane;
    op.firstUse = static_cast<uint32_t>(program.uses.size());
    program.uses.insert(program.uses.end(), uses);
    op.endUse = static_cast<uint32_t>(program.uses.size());
    op.firstMade = op.endMade = static_cast<uint32_t>(program.versions.size());
    program.ops.push_back(op);
    return static_cast<uint32_t>(program.ops.size() - 1);
  }
  uint32_t wait(Kind kind, uint32_t of) {
    const uint32_t index = add(kind);
    program.ops.back().of = static_cast<int32_t>(of);
    return index;
  }
  // The last op makes a version in this range.
  uint32_t makes(const Program::Range &range, uint64_t held) {
    program.ranges.push_back(range);
    return makes(static_cast<int32_t>(program.ranges.size() - 1), held, Program::kNone);
  }
  // The last op makes the next one of a version, in place.
  uint32_t updates(uint32_t version) {
    const Program::Version &before = program.versions[version];
    return makes(before.range, before.held, static_cast<int32_t>(version));
  }
  uint32_t brings(const Program::Range &range, uint64_t bytes) {
    add(Kind::Bring, {}, Lane::H2D);
    program.ops.back().bytes = bytes;
    return makes(range, bytes);
  }

  OrderedLanes order() const { return orderLanes(steps(), waitsOf(program)); }
  std::vector<LaneStep> steps() const {
    std::vector<LaneStep> steps;
    for (uint32_t op = 0; op < program.ops.size(); ++op)
      if (program.ops[op].isStep())
        steps.push_back({op, program.ops[op].lane});
    return steps;
  }

private:
  uint32_t makes(int32_t range, uint64_t held, int32_t after) {
    program.versions.push_back({static_cast<int32_t>(program.ops.size() - 1), after, range, held});
    program.ops.back().endMade = static_cast<uint32_t>(program.versions.size());
    return static_cast<uint32_t>(program.versions.size() - 1);
  }
};

constexpr Program::Range kSlot{0, 0, 0, false};
constexpr Program::Range transient(uint64_t bytes) { return {Program::Range::kTransient, 0, bytes, false}; }

testing::Matcher<const Wait &> isWait(uint32_t before, uint32_t of, Lane lane, WaitKind kind) {
  return testing::AllOf(testing::Field(&Wait::before, before), testing::Field(&Wait::of, of),
                        testing::Field(&Wait::lane, lane), testing::Field(&Wait::kind, kind));
}

// What Program.h shows.
Ops shown() {
  Ops ops;
  ops.add(Kind::Carry);
  const uint32_t there = ops.makes(kSlot, 100);
  ops.add(Kind::Compute, {there});
  const uint32_t made = ops.makes(transient(50), 0);
  ops.add(Kind::Release, {there});
  const uint32_t brought = ops.brings(kSlot, 100);
  ops.wait(Kind::Await, 3);
  ops.add(Kind::Compute, {made, brought});
  ops.program.ops.back().workspaceBytes = 300;
  ops.makes(transient(256), 0);
  return ops;
}

TEST(OrderLanes, ACopyWaitsForReadersOfItsRangeAndUsesForCopies) {
  const Ops ops = shown();
  EXPECT_THAT(waitsOf(ops.program),
              ElementsAre(isWait(3, 1, Lane::H2D, WaitKind::War), isWait(4, 3, Lane::Compute, WaitKind::Raw)));
  const OrderedLanes order = ops.order();
  EXPECT_THAT(order.waiter, ElementsAre(1, 2)); // steps are 1, 3 and 5 of the ops
  EXPECT_THAT(order.clocks, ElementsAre(Clock{-1, -1, -1, -1}, Clock{0, -1, -1, -1}, Clock{0, 1, -1, -1}));
}

TEST(OrderLanes, LivesAreCountedInComputeSteps) {
  const Ops ops = shown();
  const ArenaIteration lives = livesOf(ops.program, ops.order().clocks);
  ASSERT_EQ(lives.transients.size(), 3u); // what is made twice, and the workspace
  EXPECT_EQ(lives.transients[0].bytes, 256u);
  EXPECT_EQ(lives.transients[0].first, 0);
  EXPECT_EQ(lives.transients[0].last, 1);
  EXPECT_EQ(lives.transients[2].bytes, 512u);
  EXPECT_EQ(lives.transients[2].first, 1);
  ASSERT_EQ(lives.slotUses.size(), 2u);
  EXPECT_EQ(lives.slotUses[0].bytes, 256u);
  EXPECT_EQ(lives.slotUses[0].first, 0);
  EXPECT_EQ(lives.slotUses[0].last, 0);
  EXPECT_EQ(lives.slotUses[1].first, 1); // its copy starts once step 0 has ended
  EXPECT_EQ(lives.slotUses[1].last, 1);
}

TEST(OrderLanes, WhatAnEvictReadsAndACarriedOutHoldsIsThereToTheEnd) {
  Ops ops;
  ops.add(Kind::Carry);
  const uint32_t there = ops.makes(kSlot, 100);
  ops.add(Kind::Carry);
  const uint32_t other = ops.makes({0, 256, 0, false}, 100);
  ops.add(Kind::Compute, {there});
  const uint32_t written = ops.updates(there);
  ops.add(Kind::Evict, {written}, Lane::D2H);
  ops.add(Kind::CarryOut, {other});
  const ArenaIteration lives = livesOf(ops.program, ops.order().clocks);
  ASSERT_EQ(lives.slotUses.size(), 2u);
  EXPECT_EQ(lives.slotUses[0].last, kToTheEnd);
  EXPECT_EQ(lives.slotUses[1].last, kToTheEnd);
  EXPECT_THAT(waitsOf(ops.program), ElementsAre(isWait(3, 2, Lane::D2H, WaitKind::Raw)));
}

// A claimed range is waited for by the step that writes it, and by no other.
TEST(OrderLanes, WhatIsClaimedIsWaitedForOnce) {
  Ops ops;
  const uint32_t brought = ops.brings(kSlot, 100);
  ops.add(Kind::Release, {brought});
  ops.add(Kind::Claim);
  const uint32_t claimed = ops.makes({0, 0, 0, true}, 100);
  ops.add(Kind::Compute, {claimed});
  const uint32_t written = ops.updates(claimed);
  ops.add(Kind::Compute, {written});
  EXPECT_THAT(waitsOf(ops.program), ElementsAre(isWait(3, 0, Lane::Compute, WaitKind::Waw)));
}

//   h2d       A       B         C waits for A and for B; B's lane has run A before, so the wait for A goes
//   compute               C
TEST(OrderLanes, AWaitThatTheOthersCoverGoes) {
  const std::vector<LaneStep> steps = {{0, Lane::H2D}, {1, Lane::H2D}, {4, Lane::Compute}};
  const std::vector<Wait> waits = {{2, 0, Lane::Compute, WaitKind::Raw}, {3, 1, Lane::Compute, WaitKind::Raw}};
  const OrderedLanes order = orderLanes(steps, waits);
  EXPECT_THAT(order.waiter, ElementsAre(OrderedLanes::kNobody, 2));
}

// A pace of a step that is waited for anyway: what stays names the data.
TEST(OrderLanes, OfTwoWaitsForAStepTheReasonThatIsDataStays) {
  const std::vector<LaneStep> steps = {{0, Lane::Compute}, {3, Lane::H2D}};
  const std::vector<Wait> waits = {{1, 0, Lane::H2D, WaitKind::Pacing}, {2, 0, Lane::H2D, WaitKind::War}};
  const OrderedLanes order = orderLanes(steps, waits);
  EXPECT_THAT(order.waiter, ElementsAre(OrderedLanes::kNobody, 1));
  EXPECT_EQ(order.kinds[1], WaitKind::War);
}

// Nothing of the lane follows.
TEST(OrderLanes, AWaitThatHoldsNothingUpGoes) {
  const std::vector<LaneStep> steps = {{0, Lane::H2D}};
  const std::vector<Wait> waits = {{1, 0, Lane::Compute, WaitKind::Raw}};
  EXPECT_THAT(orderLanes(steps, waits).waiter, ElementsAre(OrderedLanes::kNobody));
}

} // namespace
} // namespace headrace::algorithms
