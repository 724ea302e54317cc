// SPDX-License-Identifier: Apache-2.0
//
// What the coordinator decides, on the bus of BusRequests.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "tests/unit/serve/BusRequests.h"

namespace headrace::serve {
namespace {

using testing::HasSubstr;

TEST(Coordinator, BesideAnIdleNeighbourTheMostIsOffloaded) {
  Coordinator c = twoDevices();
  ASSERT_TRUE(c.arrive(requestFor(0, 12, {0, 8, 16, 20})).ok());
  EXPECT_EQ(c.state(0), DeviceState::Waiting);
  EXPECT_EQ(*c.start(0), true);
  EXPECT_EQ(c.state(0), DeviceState::Running);
  const NextIteration next = *c.nextIteration(0);
  EXPECT_EQ(next.placement, 20u);
  EXPECT_FALSE(next.changed);
}

TEST(Coordinator, ANewRequestStartsOnlyAfterItsNeighbourHasMadeRoom) {
  Coordinator c = leftRuns();
  // 16 bytes and nothing else: 10 s alone, more than 12 beside any copy of the neighbour.
  ASSERT_TRUE(c.arrive(requestFor(1, 12, {16})).ok());
  EXPECT_EQ(*c.start(1), false);                // the neighbour is in the middle of an iteration
  EXPECT_EQ(c.nextIteration(0)->placement, 0u); // its next one begins with the change
  EXPECT_EQ(*c.start(1), false);                // which is under way
  EXPECT_FALSE(c.nextIteration(0)->changed);    // and has ended
  EXPECT_EQ(*c.start(1), true);
  EXPECT_EQ(c.nextIteration(1)->placement, 16u);
  // When it ends, the neighbour takes back what it had.
  ASSERT_TRUE(c.finish(1).ok());
  const NextIteration back = *c.nextIteration(0);
  EXPECT_EQ(back.placement, 20u);
  EXPECT_TRUE(back.changed);
}

TEST(Coordinator, AChangeThatTakesMoreWaitsForTheOneThatMakesRoom) {
  Coordinator c = leftRuns();
  ASSERT_TRUE(c.arrive(requestFor(1, 12, {0, 16})).ok());
  EXPECT_EQ(*c.start(1), true); // with nothing offloaded it disturbs nobody: 20 bytes are more than 16
  EXPECT_EQ(c.nextIteration(1)->placement, 0u);
  ASSERT_TRUE(c.finish(0).ok());
  EXPECT_EQ(c.nextIteration(1)->placement, 16u);
}

// 20 bytes take 12 s alone, more beside any copy: nobody else may copy while that objective stands. Then 4 bytes are
// left: beside these, 16 bytes take 10 s and at most 2 more.
TEST(Coordinator, ADeviceThatDrainsBindsNobodyAndStillCounts) {
  Coordinator c = twoDevices();
  EXPECT_EQ(c.drain(0, {4, 0}).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(c.arrive(requestFor(0, 12, {20})).ok());
  EXPECT_EQ(c.drain(0, {4, 0}).code(), absl::StatusCode::kFailedPrecondition); // it waits
  EXPECT_EQ(*c.start(0), true);
  EXPECT_EQ(c.arrive(requestFor(1, 100, {16})).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(c.drain(0, {4, 0}).ok());
  EXPECT_TRUE(c.settled());
  EXPECT_EQ(c.state(0), DeviceState::Running);
  EXPECT_EQ(c.arrive(requestFor(1, 10, {16})).code(), absl::StatusCode::kResourceExhausted); // 10 s alone
  ASSERT_TRUE(c.arrive(requestFor(1, 12.1, {16})).ok());
  EXPECT_EQ(*c.start(1), true);
  EXPECT_EQ(c.nextIteration(1)->placement, 16u);
  ASSERT_TRUE(c.finish(0).ok());
  EXPECT_EQ(c.state(0), DeviceState::Idle);
}

TEST(Coordinator, TheSloIsWhatIsLeftAfterWaiting) {
  Coordinator c = twoDevices();
  BusRequest request = requestFor(0, 15, {0, 20});
  request.waitedNs = 4 * kSecond; // 11 s are left: 20 bytes take 12
  ASSERT_TRUE(c.arrive(request).ok());
  EXPECT_EQ(*c.start(0), true);
  EXPECT_EQ(c.nextIteration(0)->placement, 0u);
  request.device = 1;
  request.waitedNs = 15 * kSecond;
  EXPECT_EQ(messageOf(c.arrive(request)), "device 1 (right): the SLO of 15000.000 ms is spent: waited 15000.000 ms");
}

TEST(Coordinator, WhatIsWaitedForRoomIsTakenFromTheSloAsWell) {
  Coordinator c = leftRuns();
  ASSERT_TRUE(c.arrive(requestFor(1, 12, {16})).ok()); // 10 s alone
  EXPECT_EQ(*c.start(1, 1 * kSecond), false);
  EXPECT_EQ(c.start(1, 0.5 * kSecond).status().code(), absl::StatusCode::kInvalidArgument); // less than before
  EXPECT_EQ(c.start(1, kInfinity).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(c.nextIteration(0)->placement, 0u);
  EXPECT_FALSE(c.nextIteration(0)->changed);
  EXPECT_EQ(*c.start(1, 2 * kSecond), true); // 10 s are left
  Coordinator d = leftRuns();
  ASSERT_TRUE(d.arrive(requestFor(1, 12, {16})).ok());
  const absl::Status late = d.start(1, 3 * kSecond).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(messageOf(late), HasSubstr("waited 3000 ms for its neighbours to make room"));
  EXPECT_EQ(d.state(1), DeviceState::Idle);
  EXPECT_EQ(d.nextIteration(0)->placement, 20u); // which keeps what it has
}

TEST(Coordinator, AChangeThatIsPostponedIsCommandedAgain) {
  Coordinator c = twoDevices();
  ASSERT_TRUE(c.arrive(requestFor(0, 12, {0, 20})).ok());
  EXPECT_EQ(*c.start(0), true);
  EXPECT_EQ(c.postpone(0).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(*c.measured(1));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(c.nextIteration(0)->changed);
    EXPECT_EQ(c.postpone(0)->placement, 20u); // it runs what it ran
  }
  EXPECT_EQ(c.nextIteration(0)->placement, 0u);
  EXPECT_FALSE(c.nextIteration(0)->changed);
}

// Going from 16 bytes to none copies 16 bytes, and nothing hides them: 10 + 8 s of 15. By steps of 4 bytes each takes
// 10 + 2 s and what is left of the copies.
TEST(Coordinator, AChangeThatIsTooLongForOneIterationIsMadeInSteps) {
  CoordinatorOptions options;
  options.transition = [](uint32_t, uint32_t from, uint32_t to) {
    return TransitionCost{from > to ? from - to : 0u, 0, !(from == 12 && to == 8)};
  };
  Coordinator c = twoDevices(options);
  ASSERT_TRUE(c.arrive(requestFor(0, 15, {0, 4, 6, 8, 12, 16})).ok());
  EXPECT_EQ(*c.start(0), true);
  EXPECT_EQ(c.nextIteration(0)->placement, 16u);
  // The new one has no room beside any copy: 16 bytes and 10 s exactly.
  ASSERT_TRUE(c.arrive(requestFor(1, 10, {16})).ok());
  EXPECT_EQ(*c.start(1), false);
  std::vector<uint32_t> run;
  for (int i = 0; i < 8 && !*c.start(1); ++i) {
    const NextIteration next = *c.nextIteration(0);
    if (next.changed)
      run.push_back(next.placement);
  }
  EXPECT_EQ(c.state(1), DeviceState::Running);
  ASSERT_FALSE(run.empty());
  EXPECT_EQ(run.back(), 0u);
  EXPECT_GT(run.size(), 1u);
  EXPECT_TRUE(std::is_sorted(run.rbegin(), run.rend()));
}

TEST(Coordinator, TriesTheNominalBandwidthAgainWhereNothingCanBeMeasured) {
  CoordinatorOptions options;
  options.raiseAfter = 4;
  Coordinator c = twoDevices(options);
  EXPECT_FALSE(c.unmeasured()); // nothing is missing
  ASSERT_TRUE(c.arrive(requestFor(0, 12, {0, 20})).ok());
  EXPECT_EQ(*c.start(0), true);
  for (int after : {4, 8, 16}) {
    ASSERT_TRUE(*c.measured(1));
    EXPECT_EQ(c.nextIteration(0)->placement, 0u);
    for (int i = 1; i < after; ++i)
      ASSERT_FALSE(c.unmeasured()) << i << " of " << after;
    EXPECT_TRUE(c.unmeasured());
    EXPECT_EQ(c.plannedBandwidth(), 2);
    EXPECT_EQ(c.nextIteration(0)->placement, 20u); // which is wrong again
  }
  // More that was measured is no try: after the next loss it is as at first.
  ASSERT_TRUE(*c.measured(1));
  for (uint32_t i = 0; i < options.raiseAfter; ++i)
    EXPECT_EQ(*c.measured(2), i + 1 == options.raiseAfter);
  ASSERT_TRUE(*c.measured(1));
  for (int i = 1; i < 4; ++i)
    ASSERT_FALSE(c.unmeasured()) << i;
  EXPECT_TRUE(c.unmeasured());
}

TEST(Coordinator, ADeviceThatDisappearsMakesRoomAndIsRefusedByName) {
  Coordinator c = leftRuns();
  ASSERT_TRUE(c.arrive(requestFor(1, 12, {16})).ok());
  EXPECT_EQ(*c.start(1), false);
  EXPECT_EQ(c.nextIteration(0)->changed, true);
  ASSERT_TRUE(c.lose(0).ok()); // in the middle of its transition
  EXPECT_EQ(c.state(0), DeviceState::Lost);
  EXPECT_EQ(*c.start(1), true);
  for (const absl::Status &refused :
       {c.arrive(requestFor(0, 12, {0})), c.nextIteration(0).status(), c.start(0).status(), c.finish(0), c.lose(0)}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(messageOf(refused), "device 0 (left): is lost");
  }
}

TEST(Coordinator, AWaitingDeviceThatDisappearsGivesItsNeighbourBackWhatItHad) {
  Coordinator c = leftRuns();
  ASSERT_TRUE(c.arrive(requestFor(1, 12, {16})).ok());
  ASSERT_TRUE(c.lose(1).ok());
  EXPECT_FALSE(c.nextIteration(0)->changed); // it had not begun
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
}

TEST(Coordinator, WhereNoChangeIsSafeTheRequestGoesBack) {
  CoordinatorOptions options;
  options.keepRetreat = false;
  options.transition = [](uint32_t, uint32_t from, uint32_t) { return TransitionCost{from == 20 ? 1000u : 0u}; };
  Coordinator c = leftRuns(options);
  ASSERT_TRUE(c.arrive(requestFor(1, 12, {16})).ok());
  const auto refused = c.start(1); // giving the 20 bytes up would take 500 s
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(messageOf(refused.status()), HasSubstr("no order of changes"));
  EXPECT_EQ(c.state(1), DeviceState::Idle);
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
  EXPECT_FALSE(c.nextIteration(0)->changed);
}

// It went back for want of room; where its neighbour ends before it is told, it starts after all.
TEST(Coordinator, ANewDecisionMayStartWhatHadNoSafeOrder) {
  CoordinatorOptions options;
  options.keepRetreat = false;
  options.transition = [](uint32_t, uint32_t from, uint32_t) { return TransitionCost{from == 20 ? 1000u : 0u}; };
  Coordinator c = leftRuns(options);
  ASSERT_TRUE(c.arrive(requestFor(1, 12, {16})).ok());
  ASSERT_TRUE(c.finish(0).ok());
  const auto started = c.start(1);
  ASSERT_TRUE(started.ok()) << started.status();
  EXPECT_TRUE(*started);
}

// What it runs holds its objective because nothing runs beside it: no reason to give way by a change that breaks it.
TEST(Coordinator, WhatHoldsAloneIsNotGivenUpByAChangeThatIsTooLong) {
  CoordinatorOptions options;
  options.keepRetreat = false;
  options.transition = [](uint32_t, uint32_t from, uint32_t) { return TransitionCost{from == 20 ? 1000u : 0u}; };
  Coordinator c = twoDevices(options);
  BusRequest request = requestFor(0, 12, {0, 20});
  request.placements[1].exposedBytes = 4; // 14 s by its bytes, 12 s alone
  request.placements[1].soloNs = 12 * kSecond;
  request.placements[1].soloRate = 2;
  ASSERT_TRUE(c.arrive(request).ok());
  EXPECT_EQ(*c.start(0), true);
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
  ASSERT_TRUE(c.arrive(requestFor(1, 12, {16})).ok());
  EXPECT_EQ(c.start(1).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
}

// From 20 bytes on there is no way back within any objective: they are not taken where neighbours may come.
TEST(Coordinator, OnlyWhatCanGiveWayIsTakenOnABusOfSeveralDevices) {
  CoordinatorOptions options;
  options.transition = [](uint32_t, uint32_t from, uint32_t) { return TransitionCost{from == 20 ? 1000u : 0u}; };
  Coordinator c = twoDevices(options);
  ASSERT_TRUE(c.arrive(requestFor(0, 12, {0, 8, 20})).ok());
  EXPECT_EQ(*c.start(0), true);
  EXPECT_EQ(c.nextIteration(0)->placement, 8u);
  ASSERT_TRUE(c.arrive(requestFor(1, 12, {16})).ok());
  EXPECT_EQ(c.nextIteration(0)->placement, 0u);
  EXPECT_FALSE(c.nextIteration(0)->changed);
  EXPECT_EQ(*c.start(1), true);
  // What copies least is taken even where it is all there is.
  ASSERT_TRUE(c.finish(1).ok());
  ASSERT_TRUE(c.finish(0).ok());
  ASSERT_TRUE(c.arrive(requestFor(0, 12, {20})).ok());
  auto alone = Coordinator::create(2, {{"only", 2, 100}}, options);
  ASSERT_TRUE(alone.ok());
  ASSERT_TRUE(alone->arrive(requestFor(0, 12, {0, 8, 20})).ok());
  EXPECT_EQ(*alone->start(0), true);
  EXPECT_EQ(alone->nextIteration(0)->placement, 20u); // nobody to give way to
}

TEST(Coordinator, LessBandwidthIsPlannedWithAtOnceMoreOnlyAfterAWhile) {
  CoordinatorOptions options;
  options.raiseAfter = 3;
  Coordinator c = leftRuns(options);
  EXPECT_EQ(*c.measured(1.95), false); // within the hysteresis
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
  EXPECT_EQ(*c.measured(1.01), true); // a moment that was half over when the bus lost half
  EXPECT_EQ(c.plannedBandwidth(), 1.01);
  EXPECT_EQ(*c.measured(1), true); // 20 bytes would take 22 s, 8 are hidden
  EXPECT_EQ(c.plannedBandwidth(), 1);
  EXPECT_EQ(*c.measured(1), false);
  EXPECT_FALSE(c.overloaded());
  EXPECT_EQ(c.nextIteration(0)->placement, 8u);
  EXPECT_EQ(*c.measured(1.9), false);
  EXPECT_EQ(*c.measured(2), false);
  EXPECT_EQ(*c.measured(1.05), false); // begins again
  EXPECT_EQ(*c.measured(2), false);
  EXPECT_EQ(*c.measured(1.9), false);
  EXPECT_EQ(c.nextIteration(0)->placement, 8u);
  EXPECT_EQ(*c.measured(5), true); // no more than the bus has; the least of the three
  EXPECT_EQ(c.plannedBandwidth(), 1.9);
  EXPECT_EQ(c.nextIteration(0)->placement, 8u); // 20 bytes take 12.5 s
  for (double expected : {1.9, 1.9, 2.0}) {
    EXPECT_EQ(*c.measured(2), expected == 2.0);
    EXPECT_EQ(c.plannedBandwidth(), expected);
  }
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
  for (double bandwidth : {0.0, -1.0, std::nan(""), kInfinity})
    EXPECT_EQ(c.measured(bandwidth).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Coordinator, WhereNothingHoldsEveryDeviceCopiesAsLittleAsItCan) {
  Coordinator c = twoDevices();
  ASSERT_TRUE(c.arrive(requestFor(0, 12, {8, 20})).ok()); // 8 are the least that fit
  EXPECT_EQ(*c.start(0), true);
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
  EXPECT_EQ(*c.measured(0.5), true); // 8 bytes take 18 s
  EXPECT_TRUE(c.overloaded());
  EXPECT_EQ(c.nextIteration(0)->placement, 8u);
  EXPECT_EQ(c.arrive(requestFor(1, 30, {0})).code(), absl::StatusCode::kResourceExhausted);
  for (uint32_t i = 0; i < CoordinatorOptions{}.raiseAfter; ++i)
    EXPECT_TRUE(c.measured(2).ok());
  EXPECT_FALSE(c.overloaded());
  EXPECT_EQ(c.nextIteration(0)->placement, 20u);
}

// What the devices were told, kept beside the coordinator.
struct Told {
  std::optional<BusPlacement> runs, before; // before: while a change is under way
  double sloNs = 0;
};

TEST(Coordinator, AtEveryMomentWhatRunsIsWithinItsObjectives) {
  EXPECT_TRUE(rc::check([] {
    constexpr uint32_t kDevices = 3;
    auto made = Coordinator::create(2, {{"a", 2, 100}, {"b", 1, 100}, {"c", 2, 100}});
    RC_ASSERT(made.ok());
    Coordinator &c = *made;
    std::vector<Told> told(kDevices);
    const auto find = [](uint32_t bytes) { return copying(bytes); };
    const auto check = [&] {
      std::vector<BusLoad> loads;
      for (uint32_t d = 0; d < kDevices; ++d) {
        if (told[d].runs)
          loads.push_back(
              {d, told[d].sloNs, {told[d].before ? transitionOf(*told[d].before, *told[d].runs, {}) : *told[d].runs}});
      }
      const Bus bus{2, {2, 1, 2}};
      RC_ASSERT(admissible(bus, loads, std::vector<uint32_t>(loads.size(), 0)));
    };
    const auto iterate = [&](uint32_t d) {
      const auto next = c.nextIteration(d);
      RC_ASSERT(next.ok());
      told[d].before = next->changed ? told[d].runs : std::nullopt;
      told[d].runs = find(next->placement);
    };
    const auto tryStart = [&](uint32_t d) {
      const auto started = c.start(d);
      RC_ASSERT(started.ok() || started.status().code() == absl::StatusCode::kUnavailable);
      if (started.ok() && *started)
        iterate(d);
    };
    for (int step = 0; step < 60; ++step) {
      const auto d = *rc::gen::inRange<uint32_t>(0, kDevices);
      if (c.state(d) == DeviceState::Idle) {
        const double slo = *rc::gen::inRange(9, 40);
        const auto bytes = *rc::gen::container<std::vector<uint32_t>>(*rc::gen::inRange(1, 5), rc::gen::inRange(0, 31));
        if (c.arrive(requestFor(d, slo, bytes)).ok())
          told[d].sloNs = slo * kSecond;
      } else if (c.state(d) == DeviceState::Waiting) {
        tryStart(d);
      } else if (*rc::gen::inRange(0, 6) == 0) {
        RC_ASSERT(c.finish(d).ok());
        told[d] = {};
      } else {
        iterate(d);
      }
      check();
    }
    // Nobody waits for ever: after as many iterations as there are devices every request has started or gone back.
    for (uint32_t round = 0; round < 2 * kDevices + 2; ++round) {
      for (uint32_t d = 0; d < kDevices; ++d) {
        if (c.state(d) == DeviceState::Running)
          iterate(d);
        else if (c.state(d) == DeviceState::Waiting)
          tryStart(d);
        check();
      }
    }
    for (uint32_t d = 0; d < kDevices; ++d)
      RC_ASSERT(c.state(d) != DeviceState::Waiting);
  }));
}

} // namespace
} // namespace headrace::serve
