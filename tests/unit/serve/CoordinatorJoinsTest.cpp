// SPDX-License-Identifier: Apache-2.0
//
// Requests that join what a device runs, on the bus of BusRequests.h.
#include <gmock/gmock.h>

#include "tests/unit/serve/BusRequests.h"

namespace headrace::serve {
namespace {

using testing::HasSubstr;

// What a device serves with one more request: iterations of so many seconds of compute.
BusRequest together(uint32_t device, double sloSeconds, const std::vector<uint32_t> &bytes, double computeSeconds) {
  BusRequest request = requestFor(device, sloSeconds, bytes);
  for (BusPlacement &p : request.placements)
    p.computeNs = computeSeconds * kSecond;
  return request;
}

TEST(CoordinatorJoins, TheLoadGrowsWithThePlacementAndShrinksAgain) {
  Coordinator c = leftRuns(); // 20 bytes within 12 s
  // 11 s of compute: 20 bytes make 13 s, 8 bytes 11 s.
  ASSERT_TRUE(c.join(together(0, 12, {0, 8, 20}, 11)).ok());
  EXPECT_TRUE(c.joining(0));
  EXPECT_FALSE(c.settled());
  EXPECT_EQ(*c.start(0), true);
  EXPECT_FALSE(c.joining(0));
  const NextIteration with = *c.nextIteration(0);
  EXPECT_EQ(with.placement, 8u);
  EXPECT_TRUE(with.changed);
  EXPECT_FALSE(c.nextIteration(0)->changed);
  ASSERT_TRUE(c.update(requestFor(0, 12, {0, 8, 20})).ok());
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
}

TEST(CoordinatorJoins, OneThatCannotBeHeldIsRefusedWithTheMinimumAndNothingChanges) {
  Coordinator c = leftRuns();
  const absl::Status refused = c.join(together(0, 12, {0, 8, 20}, 13));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(messageOf(refused),
              HasSubstr("an iteration cannot be held within 12000.000 ms: minimum is 13000.000 ms"));
  EXPECT_FALSE(c.joining(0));
  EXPECT_TRUE(c.settled());
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
}

TEST(CoordinatorJoins, NeighboursMakeRoomFirst) {
  Coordinator c = leftRuns();
  ASSERT_TRUE(c.arrive(requestFor(1, 12, {0})).ok());
  EXPECT_EQ(*c.start(1), true);
  // The 4 bytes of its prompts may delay the neighbour's 20 by 2 s: more than its 12 s.
  ASSERT_TRUE(c.join(staged(20, {0})).ok());
  EXPECT_EQ(*c.start(1), false);
  const uint32_t less = c.nextIteration(0)->placement;
  EXPECT_LT(less, 20u);
  EXPECT_EQ(*c.start(1), true);
  EXPECT_EQ(c.nextIteration(0)->placement, less);
  ASSERT_TRUE(c.update(requestFor(1, 12, {0})).ok()); // its prompts are through
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
}

TEST(CoordinatorJoins, OneThatIsLeftOutBindsNobody) {
  Coordinator c = leftRuns();
  ASSERT_TRUE(c.arrive(requestFor(1, 12, {0})).ok());
  EXPECT_EQ(*c.start(1), true);
  ASSERT_TRUE(c.join(staged(20, {0})).ok());
  c.leaveOut(1);
  EXPECT_FALSE(c.joining(1));
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
  EXPECT_TRUE(c.settled());
  c.leaveOut(1); // nobody joins
}

TEST(CoordinatorJoins, WaitingSpendsTheObjectiveOfTheFirstStage) {
  Coordinator c = leftRuns();
  ASSERT_TRUE(c.arrive(requestFor(1, 12, {0})).ok());
  EXPECT_EQ(*c.start(1), true);
  ASSERT_TRUE(c.join(staged(20, {0})).ok());
  const absl::StatusOr<bool> started = c.start(1, 17 * kSecond); // 3 s are left, it takes 4 alone
  EXPECT_EQ(started.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(c.joining(1));
  EXPECT_EQ(c.state(1), DeviceState::Running); // what it ran goes on
}

// Of two objectives each may be met by another placement: the minimum is that of those which meet the other one.
TEST(CoordinatorJoins, TheMinimumOfOneObjectiveIsHeldWithTheOther) {
  Coordinator c = twoDevices();
  BusRequest request = requestFor(0, 11, {0, 0});
  request.firstSloNs = 10 * kSecond;
  request.placements[0].first.computeNs = 20 * kSecond; // 10 s an iteration, the first token too late
  request.placements[1].computeNs = 12 * kSecond;
  request.placements[1].first.computeNs = 5 * kSecond;
  EXPECT_THAT(messageOf(c.arrive(request)), HasSubstr("within 11000.000 ms: minimum is 12000.000 ms"));
  request.sloNs = 12 * kSecond;
  EXPECT_TRUE(c.arrive(request).ok());
}

// Whatever a neighbour moves: an objective that has passed leaves no window for it, not less than none.
TEST(CoordinatorJoins, NothingHoldsWhatHasPassed) {
  EXPECT_EQ(mostBytesIn(-50 * kSecond, copying(8)).h2d, 8);
  EXPECT_EQ(mostBytesIn(50 * kSecond, copying(8)).h2d, 48); // 5 iterations of 10 s, and one that began before
}

TEST(CoordinatorJoins, TheBudgetIsWhatHoldsBothObjectives) {
  const auto joined = [](double sloSeconds, double firstSeconds) {
    Coordinator c = twoDevices();
    EXPECT_TRUE(c.arrive(requestFor(0, 20, {0})).ok());
    EXPECT_EQ(*c.start(0), true);
    BusRequest request = requestFor(0, sloSeconds, {0, 0});
    request.firstSloNs = firstSeconds * kSecond;
    request.placements[0].budget = 16; // iterations of 11 s, 8 s in all to the first token
    request.placements[0].computeNs = 11 * kSecond;
    request.placements[0].first.computeNs = 8 * kSecond;
    request.placements[1].budget = 64; // 14 s, 2 s
    request.placements[1].computeNs = 14 * kSecond;
    request.placements[1].first.computeNs = 2 * kSecond;
    if (const absl::Status status = c.join(request); !status.ok())
      return std::string(status.message());
    EXPECT_EQ(*c.start(0), true);
    const NextIteration next = *c.nextIteration(0);
    EXPECT_FALSE(next.changed); // of the same placement
    return std::to_string(next.budget);
  };
  EXPECT_EQ(joined(12, 10), "16");
  EXPECT_EQ(joined(15, 5), "64");
  EXPECT_THAT(joined(12, 5), HasSubstr("minimum is"));
}

TEST(CoordinatorJoins, NothingJoinsWhatDoesNotDecode) {
  Coordinator c = twoDevices();
  EXPECT_EQ(c.join(requestFor(0, 12, {0})).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(c.update(requestFor(0, 12, {0})).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(c.arrive(staged(20, {0})).ok());
  EXPECT_EQ(*c.start(1), true);
  EXPECT_THAT(messageOf(c.join(requestFor(1, 12, {0}))), HasSubstr("in its first stage"));
  ASSERT_TRUE(c.firstDone(1).ok());
  ASSERT_TRUE(c.join(requestFor(1, 12, {0})).ok());
  EXPECT_EQ(c.update(requestFor(1, 12, {0})).code(), absl::StatusCode::kFailedPrecondition); // one is about to join
}

} // namespace
} // namespace headrace::serve
