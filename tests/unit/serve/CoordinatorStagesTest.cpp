// SPDX-License-Identifier: Apache-2.0
//
// Prompts before decoding, on one device or on two, on the bus of BusRequests.h.
#include <cmath>

#include <gmock/gmock.h>

#include "tests/unit/serve/BusRequests.h"

namespace headrace::serve {
namespace {

using testing::HasSubstr;

TEST(Coordinator, AFirstStageIsHeldToItsOwnObjectiveAndEndsWhenItIsDone) {
  Coordinator c = twoDevices();
  EXPECT_THAT(messageOf(c.arrive(staged(3, {0, 16}))),
              HasSubstr("device 1 (right): the first token cannot be had within 3000.000 ms: minimum is 4000.000 ms"));
  for (double slo : {-1.0, std::nan(""), kInfinity})
    EXPECT_THAT(messageOf(c.arrive(staged(slo, {0}))), HasSubstr("SLO of the first stage = "));
  BusRequest spent = staged(5, {0});
  spent.waitedNs = 5 * kSecond;
  EXPECT_THAT(messageOf(c.arrive(spent)), HasSubstr("the SLO of 5000.000 ms is spent"));
  BusRequest odd = staged(5, {0});
  odd.placements[0].first.hiddenNs = -1;
  EXPECT_THAT(messageOf(c.arrive(odd)), HasSubstr("first stage: computeNs = "));

  ASSERT_TRUE(c.arrive(requestFor(0, 12, {0, 8, 20})).ok());
  EXPECT_EQ(*c.start(0), true);
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
  // Its 4 bytes may delay the neighbour's 20 by 2 s: more than its 12 s, so the neighbour makes room first.
  ASSERT_TRUE(c.arrive(staged(20, {0})).ok());
  EXPECT_EQ(*c.start(1), false);
  const uint32_t less = c.nextIteration(0)->placement;
  EXPECT_LT(less, 20u);
  EXPECT_EQ(c.nextIteration(0)->placement, less);
  EXPECT_EQ(*c.start(1), true);
  EXPECT_EQ(c.nextIteration(0)->placement, less);
  ASSERT_TRUE(c.firstDone(1).ok());
  EXPECT_EQ(c.nextIteration(0)->placement, 20u); // nothing copies beside it any more
  ASSERT_TRUE(c.firstDone(1).ok());              // has none
  ASSERT_TRUE(c.finish(1).ok());
  EXPECT_EQ(c.firstDone(1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Coordinator, APairIsNotItsOwnNeighbour) {
  Coordinator c = twoDevices();
  ASSERT_TRUE(c.arrive(decoding()).ok());
  ASSERT_TRUE(c.arrive(prefilling()).ok());
  EXPECT_EQ(*c.start(1), true);
  EXPECT_EQ(*c.start(0), true);
  ASSERT_TRUE(c.finish(0).ok()); // the prompts have ended
  // Before the hand-over has, another request's prompts are held beside the decoding, and refused.
  BusRequest next = requestFor(0, 12, {16});
  EXPECT_EQ(c.arrive(next).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(c.firstDone(1).ok());
  next.prompts = true;
  const absl::Status refused = c.arrive(next);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  // 16 bytes beside 16: 18 s, as in ARefusalForTheBusNamesTheMinimumBesideTheNeighbours.
  EXPECT_EQ(messageOf(refused),
            "device 0 (left): limited by the bus: the first token cannot be had within 12000.000 ms "
            "beside 1 neighbour (1 of 2 bytes/s while all copy): at no SLO of its own: device 1 "
            "(right), request 7, has 12000.000 ms an iteration and would take 18000.000 ms beside it");
  ASSERT_TRUE(c.arrive(requestFor(0, 12, {0})).ok()); // copies nothing
  EXPECT_EQ(*c.start(0), true);
}

// Whatever ends first: the two are neighbours again as soon as one of them serves another request.
TEST(Coordinator, APairEndsWithItsDecodingOrTheEndOfItsPrompts) {
  for (const bool lost : {false, true}) {
    Coordinator c = twoDevices();
    ASSERT_TRUE(c.arrive(decoding()).ok());
    ASSERT_TRUE(c.arrive(prefilling()).ok());
    EXPECT_EQ(*c.start(1), true);
    EXPECT_EQ(*c.start(0), true);
    if (lost) {
      ASSERT_TRUE(c.lose(1).ok());
      EXPECT_EQ(c.state(0), DeviceState::Running);
      continue;
    }
    ASSERT_TRUE(c.finish(1).ok());                                                // given up
    EXPECT_EQ(c.arrive(decoding()).code(), absl::StatusCode::kResourceExhausted); // the prompts still run
    ASSERT_TRUE(c.finish(0).ok());
    ASSERT_TRUE(c.arrive(decoding()).ok());
  }
  // The caller says that decoding begins while the prompts run: they count from then on, and nothing holds.
  Coordinator c = twoDevices();
  ASSERT_TRUE(c.arrive(decoding()).ok());
  ASSERT_TRUE(c.arrive(prefilling()).ok());
  EXPECT_EQ(*c.start(1), true);
  EXPECT_EQ(*c.start(0), true);
  EXPECT_FALSE(c.overloaded());
  ASSERT_TRUE(c.firstDone(1).ok());
  EXPECT_TRUE(c.overloaded());
}

TEST(Coordinator, APrefillNamesTheDeviceThatDecodesAndWhatIsKeptForTheHandOver) {
  Coordinator c = twoDevices();
  for (const uint32_t none : {1u, 0u, 9u}) { // serves nothing, itself, no device
    BusRequest alone = prefilling();
    alone.decodedBy = none;
    EXPECT_THAT(messageOf(c.arrive(alone)), HasSubstr("expected one with a request that has not begun"));
  }
  ASSERT_TRUE(c.arrive(decoding()).ok());
  // Of 15 s 4 are kept and 2 were waited: 9 are left of the 10 that it takes.
  BusRequest request = prefilling(15, 4);
  request.waitedNs = 2 * kSecond;
  EXPECT_EQ(messageOf(c.arrive(request)),
            "device 0 (left): the first token cannot be had within 9000.000 ms (TTFT 15000.000 ms less 2000.000 ms "
            "waited and 4000.000 ms for the hand-over of the KV cache): minimum is 10000.000 ms in 100 bytes alone on "
            "the bus, no amount of memory meets this SLO alone");
  request.waitedNs = 1 * kSecond; // to the last
  EXPECT_TRUE(c.arrive(request).ok());
  request.handoverNs = -1;
  ASSERT_TRUE(c.finish(0).ok());
  EXPECT_THAT(messageOf(c.arrive(request)), HasSubstr("hand-over = -1 ns: expected a time of 0 or more"));
}

TEST(Coordinator, NothingChangesDuringAFirstStage) {
  Coordinator c = twoDevices();
  ASSERT_TRUE(c.arrive(requestFor(0, 12, {20})).ok());
  EXPECT_EQ(*c.start(0), true);
  ASSERT_TRUE(c.arrive(staged(100, {0, 20})).ok() == false); // 4 bytes beside 20 are too many at any placement
  ASSERT_TRUE(c.finish(0).ok());
  ASSERT_TRUE(c.arrive(requestFor(0, 12, {0})).ok());
  EXPECT_EQ(*c.start(0), true);
  ASSERT_TRUE(c.arrive(staged(100, {0, 20})).ok());
  EXPECT_EQ(*c.start(1), true);
  EXPECT_EQ(c.nextIteration(1)->placement, 20u);
  ASSERT_TRUE(*c.measured(1)); // 20 bytes in 12 s are too much
  EXPECT_FALSE(c.settled());
  EXPECT_FALSE(c.nextIteration(1)->changed);
  ASSERT_TRUE(c.firstDone(1).ok());
  EXPECT_EQ(c.nextIteration(1)->placement, 0u);
  EXPECT_FALSE(c.settled()); // the change is under way
  EXPECT_FALSE(c.nextIteration(1)->changed);
  EXPECT_TRUE(c.settled());
}

} // namespace
} // namespace headrace::serve
