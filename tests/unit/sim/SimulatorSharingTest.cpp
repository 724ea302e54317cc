// SPDX-License-Identifier: Apache-2.0
//
// Copies of both directions at once, and the cpu lane beside them: what is slowed is an event, against what is timed
// ahead, and against an oracle that counts nanosecond by nanosecond.
#include <algorithm>
#include <array>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "runtime/sim/Simulator.h"
#include "tests/unit/sim/Schedules.h"

namespace headrace::sim {
namespace {

Timeline play(const HandMade &made, double duplexShare) {
  return Simulator(made.schedule).run(made.durations, cost::Sharing(duplexShare));
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

// Of host memory of `gb` GB/s, of which h2d, d2h and the cpu lane ask for so many.
cost::Sharing hostMemory(double gb, double h2d, double d2h, double cpu) {
  cost::Sharing sharing;
  sharing.hostMemory = gb * 1e9;
  sharing.asked = {h2d * 1e9, d2h * 1e9, cpu * 1e9};
  return sharing;
}

TEST(HostMemory, TwoFlowsGetHalfEachUntilOneEnds) {
  HandMade m;
  m.h2d(1'000'000'000); // 15 GB/s
  m.cpu(1'000'000'000); // 20 GB/s
  // 13 GB/s each: h2d's 15 GB take 15 / 13 = 1.1538 s, to the next nanosecond; of the other 20 GB 5 are left, 0.25 s at
  // 20 GB/s: 1.4038461538 s.
  const Timeline t = Simulator(m.schedule).run(m.durations, hostMemory(26, 15, 15, 20));
  EXPECT_EQ(t.steps[0].endNs, 1'153'846'154u);
  EXPECT_EQ(t.steps[1].endNs, 1'403'846'154u); // each at a whole nanosecond
  EXPECT_EQ(t.h2dBusyNs, t.steps[0].endNs);
  EXPECT_EQ(t.cpuBusyNs, t.steps[1].endNs);
}

TEST(HostMemory, WhatAsksForLessThanItsShareGetsAll) {
  HandMade m;
  m.h2d(1000);
  m.d2h(1000);
  m.cpu(1000);
  // 24 among three is 8: h2d asks for 6, so 9 each are left to d2h and the CPU, which ask for 12 and 18: 3/4 and 1/2 of
  // their rates. h2d ends at 1,000; then 12 each: d2h, 250 left, at all of its rate, until 1,250; the CPU has done 500,
  // goes at 2/3 until then, 167 more, and at all of it from there: 1,250 + 333 = 1,583.33.
  const Timeline t = Simulator(m.schedule).run(m.durations, hostMemory(24, 6, 12, 18));
  EXPECT_EQ(t.steps[0].endNs, 1000u);
  EXPECT_EQ(t.steps[1].endNs, 1250u);
  EXPECT_EQ(t.steps[2].endNs, 1584u);
}

TEST(HostMemory, ThatHoldsAllSlowsNothing) {
  HandMade m;
  m.h2d(1000);
  m.d2h(1000);
  m.cpu(1000);
  EXPECT_EQ(Simulator(m.schedule).run(m.durations, hostMemory(36, 6, 12, 18)).iterationNs, 1000u);
}

TEST(HostMemory, ACopyBesideALaunchTakesOfIt) {
  HandMade m;
  m.cpu(1000);
  const core::BlockCopy copy{.bytes = 10'000}; // 500 ns at 20 GB/s
  BesideCopies beside;
  beside.ask({&copy, 1}, {20e9, 20e9, 0}, 0, 0, 0);
  Timeline t;
  // Half each of 20: the copy takes twice its 500 ns, the cpu lane has done 500 of 1,000 by then: 1,500.
  Simulator(m.schedule).run(m.durations, hostMemory(20, 20, 20, 20), beside, 0, t);
  EXPECT_EQ(beside.lastEndNs(), 1000);
  EXPECT_EQ(t.iterationNs, 1500u);
}

TEST(Simulator, TheComputeLaneWaitsForTheCpuOrForCopies) {
  HandMade m;
  const uint32_t cpu = m.cpu(70);
  const uint32_t copy = m.h2d(100);
  m.compute(10);             // 0 to 10
  m.compute(10, {cpu});      // 70 to 80: 60 for the CPU
  m.compute(5, {cpu, copy}); // 100 to 105: 20 for the copy
  const Timeline t = play(m, 2.0);
  EXPECT_EQ(t.cpuWaitNs, 60u);
  EXPECT_EQ(t.stallNs, 20u);
  EXPECT_EQ(t.cpuBusyNs, 70u);
}

// Up to 24 steps on the compute, h2d, d2h and, of four lanes, cpu lanes, with edges from earlier steps of other lanes.
HandMade randomSchedule(int lanes = 3) {
  HandMade m;
  const int steps = *rc::gen::inRange(1, 25);
  for (int i = 0; i < steps; ++i) {
    const auto lane = static_cast<plan::Lane>(*rc::gen::inRange(0, lanes));
    std::vector<uint32_t> after;
    for (uint32_t from = 0; from < static_cast<uint32_t>(i); ++from) {
      if (m.schedule.steps[from].lane != lane && *rc::gen::inRange(0, 6) == 0)
        after.push_back(from);
    }
    m.add(lane, static_cast<uint64_t>(*rc::gen::inRange(0, 40)), after);
  }
  return m;
}

constexpr int kWhole = 64;                        // of a nanosecond's work
using LaneShares = std::array<int, plan::kLanes>; // of kWhole, that a lane does in a nanosecond

// The rules of Simulator.h, one nanosecond after the other; `sharesOf(active)`: of the lanes that are at work.
template <class SharesOf> std::vector<StepTime> tickByTick(const HandMade &m, const SharesOf &sharesOf) {
  const size_t n = m.durations.size();
  std::vector<StepTime> times(n);
  std::vector<bool> started(n), ended(n);
  std::vector<int64_t> left(n);
  for (size_t i = 0; i < n; ++i)
    left[i] = kWhole * static_cast<int64_t>(m.durations[i]);
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
    std::array<bool, plan::kLanes> active{};
    bool any = false;
    for (size_t i = 0; i < n; ++i) {
      if (started[i] && !ended[i])
        any = active[static_cast<size_t>(m.schedule.steps[i].lane)] = true;
    }
    if (!any)
      return times;
    const LaneShares shares = sharesOf(active);
    for (size_t i = 0; i < n; ++i) {
      if (started[i] && !ended[i])
        left[i] -= shares[static_cast<size_t>(m.schedule.steps[i].lane)];
    }
  }
}

TEST(SimulatorSharing, AgreesWithCountingNanosecondsOneByOne) {
  EXPECT_TRUE(rc::check([] {
    const HandMade m = randomSchedule();
    const int quarters = *rc::gen::inRange(1, 5); // of its own rate that each copy gets while both directions copy
    const Timeline t = play(m, quarters / 2.0);
    const std::vector<StepTime> expected = tickByTick(m, [quarters](const auto &active) -> LaneShares {
      const int ofCopies = active[1] && active[2] ? quarters * kWhole / 4 : kWhole;
      return {kWhole, ofCopies, ofCopies, kWhole};
    });
    for (size_t i = 0; i < expected.size(); ++i) {
      RC_ASSERT(t.steps[i].startNs == expected[i].startNs);
      RC_ASSERT(t.steps[i].endNs == expected[i].endNs);
    }
  }));
}

// Max-min by its other definition: who asks for least first, each at most an equal part of what is left. All is such
// that shares are whole 64ths: asked 1, 2 or 4, of both directions together quarters of that, host memory whole threes.
TEST(SimulatorSharing, OfHostMemoryAgreesWithCountingNanosecondsOneByOne) {
  EXPECT_TRUE(rc::check([] {
    const HandMade m = randomSchedule(4);
    const int quarters = *rc::gen::inRange(1, 5);
    cost::Sharing sharing(quarters / 2.0);
    for (double &asked : sharing.asked)
      asked = 1 << *rc::gen::inRange(0, 3);
    sharing.hostMemory = 3 * *rc::gen::inRange(1, 4);
    const Timeline t = Simulator(m.schedule).run(m.durations, sharing);
    const std::vector<StepTime> expected = tickByTick(m, [&](const auto &active) -> LaneShares {
      const double ofLink = active[1] && active[2] ? quarters / 4.0 : 1;
      std::vector<std::pair<double, size_t>> asks; // and the lane
      for (size_t lane = 1; lane < plan::kLanes; ++lane)
        if (active[lane])
          asks.emplace_back(sharing.asked[lane - 1] * (lane == 3 ? 1 : ofLink), lane);
      std::sort(asks.begin(), asks.end());
      LaneShares shares = {kWhole, 0, 0, 0};
      double left = sharing.hostMemory;
      for (size_t i = 0; i < asks.size(); ++i) {
        const double given = std::min(asks[i].first, left / static_cast<double>(asks.size() - i));
        left -= given;
        shares[asks[i].second] = static_cast<int>(given / sharing.asked[asks[i].second - 1] * kWhole);
      }
      return shares;
    });
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
    Simulator(m.schedule).run(m.durations, cost::Sharing(), beside, 0, events);
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
