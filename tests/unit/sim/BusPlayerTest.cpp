// SPDX-License-Identifier: Apache-2.0
//
// Random schedules on a bus against the Simulator (a device alone) and against a replay by the nanosecond.
#include "runtime/sim/BusPlayer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>

#include "runtime/sim/Simulator.h"
#include "tests/unit/sim/BusReplay.h"
#include "tests/unit/sim/RandomSchedule.h"

namespace headrace::sim {
namespace {

// No duration of these tests is this link's, so every copy asks for what its bytes and duration say.
constexpr LinkRates kNoLink = {1e6, 1e6, 0};

LinkRates withLatency(int64_t latencyNs) {
  LinkRates link = kNoLink;
  link.latencyNs = static_cast<uint64_t>(latencyNs);
  return link;
}

// When the compute lane has nothing left to do, from the schedule's start.
int64_t computeEndNs(const plan::Schedule &schedule, const Timeline &timeline) {
  uint64_t end = 0;
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    if (schedule.steps[i].lane == plan::Lane::Compute)
      end = std::max(end, timeline.steps[i].endNs);
  return static_cast<int64_t>(end);
}

// Of host memory that may be as much as all ask for, or less.
cost::Sharing randomSharing(double duplexShare) {
  cost::Sharing sharing(duplexShare);
  if (below(4) == 0)
    return sharing;
  for (double &asked : sharing.asked)
    asked = (1 + below(6)) * 1e9;
  sharing.hostMemory = (1 + below(14)) * 1e9;
  return sharing;
}

RC_GTEST_PROP(BusPlayerProperty, ADeviceAloneHasTheSimulatorsTimes, ()) {
  const int64_t latencyNs = below(20);
  const double duplexShare = 1 + below(11) / 10.0;
  const cost::Sharing sharing = randomSharing(duplexShare);
  BusPlayer player(1, {});
  player.open(0, 16, true, sharing);
  std::vector<std::unique_ptr<HandMade>> made;
  std::vector<std::unique_ptr<TimedSchedule>> timed;
  int64_t freeNs = 0, computeFreeNs = 0;
  int64_t stallNs = 0;
  const int launches = 1 + below(4);
  std::vector<LaunchTimes> times(static_cast<size_t>(launches));
  for (int n = 0; n < launches; ++n) {
    made.push_back(std::make_unique<HandMade>(randomSchedule(latencyNs, 100000, /*cpuOften=*/true)));
    timed.push_back(
        std::make_unique<TimedSchedule>(made.back()->schedule, made.back()->durations, withLatency(latencyNs)));
    const Timeline alone = Simulator(made.back()->schedule).run(made.back()->durations, sharing);
    const int64_t madeNs = player.nowNs();
    const int64_t startNs = std::max(madeNs, freeNs);
    player.launch(0, *timed.back(), &times[static_cast<size_t>(n)]);
    freeNs = startNs + static_cast<int64_t>(alone.iterationNs);
    stallNs += static_cast<int64_t>(alone.stallNs) + std::max<int64_t>(0, startNs - std::max(madeNs, computeFreeNs));
    computeFreeNs = startNs + computeEndNs(made.back()->schedule, alone);
    if (below(2) == 0)
      continue;
    LaunchTimes &last = times[static_cast<size_t>(n)];
    RC_ASSERT(player.passUntil(last.visibleNs));
    RC_ASSERT(player.nowNs() == std::max(madeNs, startNs + static_cast<int64_t>(alone.publishNs)));
    RC_ASSERT(player.passUntilIdle(0));
    RC_ASSERT(last.endNs == freeNs);
    for (size_t i = 0; i < alone.steps.size(); ++i) {
      RC_ASSERT(player.trace(0)[i].startNs == startNs + static_cast<int64_t>(alone.steps[i].startNs));
      RC_ASSERT(player.trace(0)[i].endNs == startNs + static_cast<int64_t>(alone.steps[i].endNs));
    }
  }
  RC_ASSERT(player.passUntilIdle(0));
  RC_ASSERT(player.nowNs() == freeNs);
  RC_ASSERT(player.stallNs(0) == stallNs);
}

RC_GTEST_PROP(BusPlayerProperty, DevicesOnABusDoWhatAReplayByTheNanosecondDoes, ()) {
  const size_t devices = 1 + static_cast<size_t>(below(4));
  const int64_t latencyNs = below(6);
  const double duplexShare = 1 + below(5) / 4.0;
  const auto limit = [](int most) { return static_cast<double>(1 + below(most)); };
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const core::PathLimits bus = {limit(8), below(2) == 0 ? limit(6) : kNone, below(2) == 0 ? limit(10) : kNone};
  std::vector<std::unique_ptr<HandMade>> made;
  std::vector<std::unique_ptr<TimedSchedule>> timed;
  Replay replay;
  replay.bus = bus;
  replay.devices = devices;
  replay.latencyNs = latencyNs;
  replay.bothShare = std::min(1.0, duplexShare / 2);
  const int launches = 1 + below(8);
  for (int n = 0; n < launches; ++n) {
    made.push_back(std::make_unique<HandMade>(randomSchedule(latencyNs, 30, /*cpuOften=*/true)));
    timed.push_back(
        std::make_unique<TimedSchedule>(made.back()->schedule, made.back()->durations, withLatency(latencyNs)));
    const int64_t afterNs = replay.launches.empty() ? 0 : replay.launches.back().atNs;
    replay.launches.push_back(
        {afterNs + below(60), static_cast<size_t>(below(static_cast<int>(devices))), made.back().get()});
  }
  for (int n = below(4); n > 0; --n)
    replay.bandwidth[below(200)] = limit(8);
  BusPlayer player(devices, {bus.h2d * 1e9, bus.d2h * 1e9, bus.both * 1e9});
  replay.asked.clear();
  for (size_t d = 0; d < devices; ++d) {
    const cost::Sharing sharing = randomSharing(duplexShare);
    player.open(d, 16, true, sharing);
    replay.memory = std::min(replay.memory, sharing.hostMemory * 1e-9);
    replay.asked.push_back({sharing.asked[0] * 1e-9, sharing.asked[1] * 1e-9, sharing.asked[2] * 1e-9});
  }
  replay.run();
  std::vector<LaunchTimes> times(replay.launches.size());
  std::map<int64_t, double> bandwidth = replay.bandwidth;
  const auto passTo = [&](int64_t ns) {
    for (; !bandwidth.empty() && bandwidth.begin()->first <= ns; bandwidth.erase(bandwidth.begin())) {
      (void)player.passUntilAny({}, bandwidth.begin()->first);
      player.setBusBandwidth(bandwidth.begin()->second * 1e9);
    }
    (void)player.passUntilAny({}, ns);
    RC_ASSERT(player.nowNs() == ns);
  };
  std::vector<size_t> lastOf(devices, times.size()); // the device's last launch
  for (size_t n = 0; n < times.size(); ++n) {
    if (replay.launches[n].atNs > player.nowNs()) // those of one moment before what follows from them
      passTo(replay.launches[n].atNs);
    player.launch(replay.launches[n].device, *timed[n], &times[n]);
    if (!replay.result[n].empty())
      lastOf[replay.launches[n].device] = n;
  }
  passTo(1'000'000);
  for (size_t n = 0; n < times.size(); ++n) {
    const std::vector<ReplayedStep> &steps = replay.result[n];
    int64_t endNs = 0;
    for (const ReplayedStep &step : steps)
      endNs = std::max(endNs, step.endNs);
    if (!steps.empty())
      RC_ASSERT(times[n].endNs == endNs);
    for (size_t i = 0; i < steps.size(); ++i)
      if (made[n]->schedule.steps[i].kind == plan::StepKind::Publish)
        RC_ASSERT(times[n].visibleNs == steps[i].endNs);
  }
  for (size_t d = 0; d < devices; ++d) {
    if (lastOf[d] == times.size() || replay.result[lastOf[d]].size() != player.trace(d).size())
      continue; // an empty launch behind it
    for (size_t i = 0; i < player.trace(d).size(); ++i) {
      RC_ASSERT(player.trace(d)[i].startNs == replay.result[lastOf[d]][i].startNs);
      RC_ASSERT(player.trace(d)[i].endNs == replay.result[lastOf[d]][i].endNs);
    }
  }
}

// Two devices, of one moment or not: the CPU's steps one after the other.
//
//   device 0  cpu [ 0-40 ]          [ 70-90 ]    its second is ready at 40, behind device 1's of 10
//   device 1  cpu        [ 40-70 ]
TEST(BusPlayer, StepsOfTheCpuTakeTurnsAsTheyBecomeReady) {
  BusPlayer player(2, {});
  HandMade first, second;
  first.cpu(20, {first.cpu(40)});
  second.cpu(30, {second.compute(10)});
  const TimedSchedule timed[] = {{first.schedule, first.durations, kNoLink},
                                 {second.schedule, second.durations, kNoLink}};
  for (size_t d : {1, 0}) {
    player.open(d, 2, true, cost::Sharing());
    player.launch(d, timed[d], nullptr);
  }
  for (size_t d : {0, 1})
    ASSERT_TRUE(player.passUntilIdle(d));
  EXPECT_EQ(player.trace(0)[0].endNs, 40);
  EXPECT_EQ(player.trace(1)[1].startNs, 40);
  EXPECT_EQ(player.trace(1)[1].endNs, 70);
  EXPECT_EQ(player.trace(0)[1].startNs, 70);
  EXPECT_EQ(player.trace(0)[1].endNs, 90);
  // Of one moment the lowest device first, whoever was launched first.
  for (size_t d : {1, 0})
    player.launch(d, timed[0], nullptr);
  for (size_t d : {0, 1})
    ASSERT_TRUE(player.passUntilIdle(d));
  EXPECT_EQ(player.trace(0)[0].startNs, 90);
  EXPECT_EQ(player.trace(1)[0].startNs, 130);
}

// Host memory of 26: two copies that ask for 10 each and the CPU, for 12, are 32, a third of which is 8.67. The copies,
// 1,000 ns each alone, end at 1,154; the CPU has done 833 by then and goes on alone.
TEST(BusPlayer, CopiesOfAllDevicesAndTheCpuShareHostMemory) {
  cost::Sharing sharing;
  sharing.hostMemory = 26e9;
  sharing.asked = {10e9, 10e9, 12e9};
  BusPlayer player(2, {});
  HandMade copies, attends;
  copies.schedule.steps[copies.h2d(1000)].linkBytes = 10'000;
  attends.schedule.steps[attends.d2h(1000)].linkBytes = 10'000;
  attends.cpu(1000);
  const TimedSchedule timed[] = {{copies.schedule, copies.durations, kNoLink},
                                 {attends.schedule, attends.durations, kNoLink}};
  for (size_t d : {0, 1}) {
    player.open(d, 2, true, sharing);
    player.launch(d, timed[d], nullptr);
  }
  for (size_t d : {0, 1})
    ASSERT_TRUE(player.passUntilIdle(d));
  EXPECT_EQ(player.trace(0)[0].endNs, 1154); // 1,000 x 10 / 8.67 = 1,153.8
  EXPECT_EQ(player.trace(1)[0].endNs, 1154);
  EXPECT_EQ(player.trace(1)[1].endNs, 1321); // 1,154 + 1,000 - 1,154 x 8.67 / 12 = 1,320.5
}

// 100 bytes a direction, each in 50 ns alone. What the bus takes from copies to the host is no loss of copies to
// devices.
TEST(BusPlayer, SlowedCopiesToTheHostAreNotWhatTheBusGaveToDevices) {
  BusPlayer player(1, {.d2h = 1e9});
  HandMade made;
  for (const uint32_t copy : {made.h2d(50), made.d2h(50)})
    made.schedule.steps[copy].linkBytes = 100;
  const TimedSchedule timed(made.schedule, made.durations, kNoLink);
  player.open(0, 2, true, cost::Sharing());
  player.launch(0, timed, nullptr);
  ASSERT_TRUE(player.passUntilIdle(0));
  EXPECT_EQ(player.trace(0)[0].endNs, 50);
  EXPECT_EQ(player.trace(0)[1].endNs, 100); // 1 byte/ns
  EXPECT_EQ(player.sampleBusBandwidth(), 0);
}

// A few hundred launches of copies of any size: what arrived in any stretch of time is at most what the bus carries,
// and all of it in a stretch in which some copy was slowed.
RC_GTEST_PROP(BusPlayerProperty, TheBusCarriesWhatItCanAndNoMore, ()) {
  const size_t devices = 2 + static_cast<size_t>(below(3));
  const double bus = 1 + below(100) / 7.0;
  BusPlayer player(devices, {bus * 1e9});
  std::vector<HandMade> made(devices);
  std::vector<std::unique_ptr<TimedSchedule>> timed;
  double moved = 0;
  for (size_t d = 0; d < devices; ++d) {
    for (int i = 0; i < 5; ++i) {
      const uint32_t copy = made[d].h2d(100000 + static_cast<uint64_t>(below(1000000)));
      made[d].schedule.steps[copy].linkBytes = made[d].durations[copy] * static_cast<uint64_t>(16 + below(5));
      moved += 20.0 * static_cast<double>(made[d].schedule.steps[copy].linkBytes);
    }
    timed.push_back(std::make_unique<TimedSchedule>(made[d].schedule, made[d].durations, kNoLink));
    player.open(d, 16, false, cost::Sharing());
    for (int n = 0; n < 20; ++n)
      player.launch(d, *timed[d], nullptr);
  }
  // Every copy alone asks for more than the bus has, so it is full until the last has ended.
  for (size_t d = 0; d < devices; ++d)
    RC_ASSERT(player.passUntilIdle(d));
  const auto took = static_cast<double>(player.nowNs());
  RC_ASSERT(moved <= bus * took * (1 + 1e-9));
  RC_ASSERT(moved >= bus * (took - 100.0 * static_cast<double>(devices))); // each copy ends on a whole nanosecond
  RC_ASSERT(std::abs(player.sampleBusBandwidth() / (bus * 1e9) - 1) < 1e-9);
  RC_ASSERT(player.sampleBusBandwidth() == 0);
}

} // namespace
} // namespace headrace::sim
