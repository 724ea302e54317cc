// SPDX-License-Identifier: Apache-2.0
//
// Copies of both directions at once: copies that are events against those that are timed ahead, and against an oracle
// that counts nanosecond by nanosecond.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "runtime/sim/Simulator.h"
#include "tests/unit/sim/Schedules.h"

namespace headrace::sim {
namespace {

Timeline play(const HandMade &made, double duplexShare) {
  return Simulator(made.schedule).run(made.durations, duplexShare);
}

TEST(SimulatorSharing, DirectionsDoNotDisturbEachOtherAtAShareOfTwo) {
  HandMade m;
  m.h2d(100);
  m.d2h(60);
  const Timeline t = play(m, 2.0);
  EXPECT_EQ(t.steps[0].endNs, 100u);
  EXPECT_EQ(t.steps[1].endNs, 60u);
}

TEST(SimulatorSharing, AtAShareOfOneEachGoesAtHalfItsRateWhileBothCopy) {
  HandMade m;
  m.h2d(100);
  m.d2h(60);
  // Both at half speed until d2h has moved its 60: at 120. h2d has 100 - 60 = 40 left and goes at full speed: 160.
  const Timeline t = play(m, 1.0);
  EXPECT_EQ(t.steps[1].endNs, 120u);
  EXPECT_EQ(t.steps[0].endNs, 160u);
  EXPECT_EQ(t.h2dBusyNs, 160u);
  EXPECT_EQ(t.d2hBusyNs, 120u);
}

TEST(SimulatorSharing, AShareOfOneAndAHalfSlowsEachToThreeQuarters) {
  HandMade m;
  m.h2d(300);
  m.d2h(300);
  // 300 / 0.75 = 400 for both.
  EXPECT_EQ(play(m, 1.5).iterationNs, 400u);
}

TEST(SimulatorSharing, ACopyThatStartsInTheMiddleOfAnotherSharesOnlyTheRest) {
  HandMade m;
  const uint32_t before = m.compute(50);
  m.h2d(100);
  m.d2h(25, {before});
  // h2d alone until 50 (50 left); then both at half: d2h needs 50, until 100, h2d has 25 left: 125.
  const Timeline t = play(m, 1.0);
  EXPECT_EQ(t.steps[2].startNs, 50u);
  EXPECT_EQ(t.steps[2].endNs, 100u);
  EXPECT_EQ(t.steps[1].endNs, 125u);
}

TEST(SimulatorSharing, ASlowedCopyEndsAtTheFirstWholeNanosecondAtWhichAllIsMoved) {
  HandMade m;
  m.h2d(10);
  m.d2h(10);
  // 10 / 0.75 = 13.33: 14.
  EXPECT_EQ(play(m, 1.5).iterationNs, 14u);
}

TEST(SimulatorSharing, ComputeAndOneDirectionAloneAreNotSlowed) {
  HandMade m;
  m.h2d(100);
  m.compute(70);
  EXPECT_EQ(play(m, 1.0).iterationNs, 100u);
}

TEST(SimulatorSharing, LongCopiesAreExact) {
  HandMade m;
  m.h2d(1'000'000'000'000'000);
  m.d2h(1'000'000'000'000'000);
  EXPECT_EQ(play(m, 1.0).iterationNs, 2'000'000'000'000'000u);
}

// Up to 24 steps on the compute, h2d and d2h lanes, with edges from earlier steps of other lanes.
HandMade randomSchedule() {
  HandMade m;
  const int steps = *rc::gen::inRange(1, 25);
  for (int i = 0; i < steps; ++i) {
    const auto lane = static_cast<plan::Lane>(*rc::gen::inRange(0, 3));
    std::vector<uint32_t> after;
    for (uint32_t from = 0; from < static_cast<uint32_t>(i); ++from) {
      if (m.schedule.steps[from].lane != lane && *rc::gen::inRange(0, 6) == 0)
        after.push_back(from);
    }
    m.add(lane, static_cast<uint64_t>(*rc::gen::inRange(0, 40)), after);
  }
  return m;
}

// The rules of Simulator.h, one nanosecond after the other, in quarters of a nanosecond's work.
std::vector<StepTime> tickByTick(const HandMade &m, int quartersWhenShared) {
  const size_t n = m.durations.size();
  std::vector<StepTime> times(n);
  std::vector<bool> started(n), ended(n);
  std::vector<int64_t> left(n);
  for (size_t i = 0; i < n; ++i)
    left[i] = 4 * static_cast<int64_t>(m.durations[i]);
  for (uint64_t now = 0;; ++now) {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t i = 0; i < n; ++i) {
        if (!started[i]) {
          bool ready = true;
          for (size_t j = 0; j < i; ++j)
            ready = ready && (ended[j] || m.schedule.steps[j].lane != m.schedule.steps[i].lane);
          for (const plan::Edge &e : m.schedule.edges)
            ready = ready && (e.to != i || ended[e.from]);
          if (ready) {
            started[i] = moved = true;
            times[i].startNs = now;
          }
        }
        if (started[i] && !ended[i] && left[i] <= 0) {
          ended[i] = moved = true;
          times[i].endNs = now;
        }
      }
    }
    bool active[plan::kLanes] = {};
    bool any = false;
    for (size_t i = 0; i < n; ++i) {
      if (started[i] && !ended[i])
        any = active[static_cast<int>(m.schedule.steps[i].lane)] = true;
    }
    if (!any)
      return times;
    const bool shared = active[1] && active[2];
    for (size_t i = 0; i < n; ++i) {
      if (started[i] && !ended[i])
        left[i] -= shared && m.schedule.steps[i].lane != plan::Lane::Compute ? quartersWhenShared : 4;
    }
  }
}

TEST(SimulatorSharing, AgreesWithCountingNanosecondsOneByOne) {
  EXPECT_TRUE(rc::check([] {
    const HandMade m = randomSchedule();
    const int quarters = *rc::gen::inRange(1, 5); // of its own rate that each copy gets while both directions copy
    const Timeline t = play(m, quarters / 2.0);
    const std::vector<StepTime> expected = tickByTick(m, quarters);
    for (size_t i = 0; i < expected.size(); ++i) {
      RC_ASSERT(t.steps[i].startNs == expected[i].startNs);
      RC_ASSERT(t.steps[i].endNs == expected[i].endNs);
    }
  }));
}

// A copy beside it to the host makes events of those to the device, and at a share of two slows none of them.
TEST(SimulatorSharing, EventsAreThoseOfCopiesThatAreTimedAheadWhereNothingIsSlowed) {
  EXPECT_TRUE(rc::check([] {
    HandMade m = randomSchedule();
    for (plan::Step &step : m.schedule.steps)
      if (step.lane == plan::Lane::D2H)
        step.lane = plan::Lane::Cpu;
    const core::BlockCopy copy{.bytes = uint64_t{1} << 20};
    BesideCopies beside;
    beside.ask({&copy, 1}, {1e9, 1e9, 0}, 0, 0, 0);
    Timeline events;
    Simulator(m.schedule).run(m.durations, 2.0, beside, 0, events);
    RC_ASSERT(!beside.idle());
    const Timeline ahead = play(m, 2.0);
    RC_ASSERT(events.iterationNs == ahead.iterationNs);
    RC_ASSERT(events.stallNs == ahead.stallNs);
    for (size_t i = 0; i < m.durations.size(); ++i) {
      RC_ASSERT(events.steps[i].startNs == ahead.steps[i].startNs);
      RC_ASSERT(events.steps[i].endNs == ahead.steps[i].endNs);
    }
  }));
}

} // namespace
} // namespace headrace::sim
