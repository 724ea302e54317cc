// SPDX-License-Identifier: Apache-2.0
//
// Devices of SmallPlan.h on a bus: 10 ns of compute, the tokens, then 40 bytes over a link of 1 byte/ns.
#include "runtime/sim/SimGroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "runtime/model/ModelSpec.h"
#include "runtime/sim/SimDevice.h"
#include "tests/unit/sim/RandomSchedule.h"
#include "tests/unit/sim/SmallPlan.h"

namespace headrace::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SimGroupTest : public testing::Test {
protected:
  // A bus of so many bytes/ns.
  void group(size_t devices, double bytesPerNs) {
    auto made = makeSimGroup(devices, {bytesPerNs * 1e9});
    ASSERT_TRUE(made.ok()) << made.status();
    group_ = *std::move(made);
    graphs_.resize(devices);
    for (size_t d = 0; d < devices; ++d)
      open(d);
  }
  void open(size_t d, core::DeviceOptions options = {}) {
    ASSERT_TRUE(group_->device(d).open(plan_, options).ok());
    auto graph = group_->device(d).build({});
    ASSERT_TRUE(graph.ok()) << graph.status();
    ASSERT_TRUE(group_->device(d).upload(**graph).ok());
    graphs_[d] = *std::move(graph);
  }
  void launch(size_t d) {
    fillSmall(group_->device(d), 1, 1);
    const absl::Status status = group_->device(d).launch(*graphs_[d]);
    ASSERT_TRUE(status.ok()) << status;
  }
  int64_t drained(size_t d) {
    EXPECT_TRUE(group_->device(d).drain().ok());
    return group_->nowNs();
  }
  void passTo(int64_t ns) {
    const auto waited = group_->waitAny(std::vector<uint64_t>(group_->size(), 0), ns);
    ASSERT_TRUE(waited.ok()) << waited.status();
    EXPECT_EQ(*waited, group_->size());
    EXPECT_EQ(group_->nowNs(), ns);
  }

  plan::Plan plan_ = smallPlan();
  std::unique_ptr<core::DeviceGroup> group_;
  std::vector<std::unique_ptr<core::Graph>> graphs_;
};

TEST_F(SimGroupTest, CopiesThatRunTogetherGetHalfTheBusEach) {
  group(2, 1);
  launch(0);
  launch(1);
  EXPECT_EQ(drained(0), 90); // 10 + 40 / 0.5, where alone it is 50
  EXPECT_EQ(drained(1), 90);
  EXPECT_EQ(group_->sampleBusBandwidth(), 1e9);
  EXPECT_EQ(group_->sampleBusBandwidth(), 0);
}

TEST_F(SimGroupTest, ABusThatIsWideEnoughSlowsNothing) {
  group(2, 2);
  launch(0);
  launch(1);
  EXPECT_EQ(drained(0), 50);
  EXPECT_EQ(drained(1), 50);
  EXPECT_EQ(group_->sampleBusBandwidth(), 0);
}

//   device 0  [ 10 ][ 20 bytes ][ 20 at half        ]                     70
//   device 1           [ 10    ][ 20 at half        ][ 20 bytes ]         90
TEST_F(SimGroupTest, OnlyTheTimeInWhichTwoCopyIsShared) {
  group(2, 1);
  launch(0);
  passTo(20);
  launch(1);
  EXPECT_EQ(drained(0), 70);
  EXPECT_EQ(drained(1), 90);
}

TEST_F(SimGroupTest, ALinksOwnLimitLeavesTheRestToTheOthers) {
  group(2, 1);
  open(0, {.linkBandwidth = 0.25e9});
  launch(0);
  launch(1);
  EXPECT_EQ(drained(1), 64);  // 10 + 40 / 0.75 = 63.3
  EXPECT_EQ(drained(0), 170); // 10 + 40 / 0.25, not slowed
}

TEST_F(SimGroupTest, ABusThatLosesBandwidthSlowsCopiesUnderWay) {
  group(1, 1);
  launch(0);
  passTo(30); // 20 bytes are there
  ASSERT_TRUE(group_->setBusBandwidth(0.25e9).ok());
  passTo(70); // 30
  EXPECT_EQ(group_->sampleBusBandwidth(), 0.25e9);
  ASSERT_TRUE(group_->setBusBandwidth(0.5e9).ok());
  EXPECT_EQ(drained(0), 90); // 20 ns for the last 10
  EXPECT_EQ(group_->sampleBusBandwidth(), 0.5e9);
  ASSERT_TRUE(group_->setBusBandwidth(4e9).ok());
  launch(0);
  EXPECT_EQ(drained(0), 140);
  EXPECT_EQ(group_->sampleBusBandwidth(), 0);
}

TEST_F(SimGroupTest, WaitAnyReturnsWhoseTokensComeFirst) {
  group(3, 1);
  launch(2);
  passTo(5);
  launch(0);
  launch(1);
  EXPECT_EQ(*group_->waitAny({1, 1, 1}, core::kForeverNs), 2u);
  EXPECT_EQ(group_->nowNs(), 10);
  EXPECT_EQ(*group_->waitAny({1, 1, 0}, 14), 3u); // nobody by 14
  EXPECT_EQ(group_->nowNs(), 14);
  EXPECT_EQ(*group_->waitAny({1, 1, 0}, 15), 0u); // the lowest of equal ones, and before the time
  EXPECT_EQ(*group_->waitAny({0, 1, 0}, 0), 1u);  // is there already
  EXPECT_EQ(*group_->waitAny({0, 0, 1}, 0), 2u);
  EXPECT_EQ(group_->nowNs(), 15);
  EXPECT_EQ(group_->device(2).tokensVisibleNs(1), 10);
}

// Tokens that come as a copy ends, in no time behind it, are there at that time.
TEST_F(SimGroupTest, WaitAnyPlaysWhatEndsAtItsTime) {
  HandMade iteration;
  const uint32_t copy = iteration.h2d(40);
  iteration.schedule.steps[copy].linkBytes = 40;
  iteration.compute(0, {copy});
  iteration.publish(0);
  plan_.schedules[0] = iteration.schedule;
  plan_.variants[0].durationsNs = iteration.durations;
  group(1, 1);
  launch(0);
  EXPECT_EQ(*group_->waitAny({1}, 39), 1u);
  EXPECT_EQ(*group_->waitAny({1}, 40), 0u);
  EXPECT_EQ(group_->nowNs(), 40);
}

// The second launch's tokens wait for the first's copies, which the other device slows.
TEST_F(SimGroupTest, WaitAnySeesWhatOnlyCopiesOfOthersDecide) {
  group(2, 1);
  launch(0);
  launch(0);
  launch(1);
  EXPECT_EQ(*group_->waitAny({2, 0}, 99), 2u);
  EXPECT_EQ(*group_->waitAny({2, 0}, 100), 0u); // both copies end at 90
  EXPECT_EQ(group_->nowNs(), 100);
}

TEST_F(SimGroupTest, WaitingOnOneDeviceLetsTheTimeOfAllPass) {
  group(2, 1);
  launch(0);
  EXPECT_EQ(drained(0), 50);
  EXPECT_EQ(group_->device(1).nowNs(), 50);
  launch(1); // made at 50
  ASSERT_TRUE(group_->device(1).awaitTokens(1).ok());
  EXPECT_EQ(group_->nowNs(), 60);
}

TEST_F(SimGroupTest, StallsGrowByWhatTheBusIsShortOf) {
  HandMade iteration; // compute waits for 40 bytes
  const uint32_t copy = iteration.h2d(40);
  iteration.schedule.steps[copy].linkBytes = 40;
  iteration.compute(10, {copy});
  plan_.schedules[0] = iteration.schedule;
  plan_.variants[0].durationsNs = iteration.durations;
  group(2, 1);
  launch(0);
  EXPECT_EQ(drained(0), 50);
  EXPECT_EQ(group_->device(0).counters().stallNs, 40);
  launch(0);
  launch(1);
  EXPECT_EQ(drained(0), 140);
  EXPECT_EQ(drained(1), 140);
  EXPECT_EQ(group_->device(0).counters().stallNs, 40 + 80);
  EXPECT_EQ(group_->device(1).counters().stallNs, 80);
  EXPECT_EQ(group_->device(0).counters().h2dBytes, 80u);
}

TEST_F(SimGroupTest, TracesShowTheSlowedCopies) {
  group(2, 1);
  open(0, {.trace = true});
  launch(0);
  launch(1);
  EXPECT_EQ(drained(0), 90);
  const auto times = group_->device(0).lastTimes();
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0].endNs, 10);
  EXPECT_EQ(times[2].startNs, 10);
  EXPECT_EQ(times[2].endNs, 90);
  EXPECT_TRUE(group_->device(1).lastTimes().empty());
}

TEST_F(SimGroupTest, TokensAreThoseOfADeviceAlone) {
  group(2, 1);
  fillSmall(group_->device(0), 3, 9);
  ASSERT_TRUE(group_->device(0).launch(*graphs_[0]).ok());
  launch(1);
  const auto tokens = group_->device(0).awaitTokens(1);
  ASSERT_TRUE(tokens.ok());
  EXPECT_THAT(*tokens, ElementsAre(madeUpToken(5, 3, 100), madeUpToken(6, 9, 100)));
}

TEST_F(SimGroupTest, OpeningOneAgainOrInVainLeavesTheOthersAlone) {
  group(2, 1);
  launch(0);
  launch(1);
  plan::Plan tooLarge = smallPlan();
  tooLarge.arenaBytes = 1001;
  EXPECT_EQ(group_->device(0).open(tooLarge, {}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(group_->nowNs(), 90); // its launch has ended
  open(0);
  EXPECT_EQ(group_->device(0).counters().launches, 0u);
  EXPECT_EQ(group_->waitAny({1, 1}, core::kForeverNs).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(*group_->waitAny({0, 1}, core::kForeverNs), 1u);
  launch(0);
  EXPECT_EQ(drained(0), 140); // the clock went on
  EXPECT_EQ(drained(1), 140);
}

TEST_F(SimGroupTest, GraphsOfAnotherDeviceOfTheGroupAreRefused) {
  group(2, 1);
  fillSmall(group_->device(1), 1, 1);
  EXPECT_THAT(group_->device(1).launch(*graphs_[0]).message(), HasSubstr("another device"));
}

TEST_F(SimGroupTest, RefusesMisuseByName) {
  group(2, 1);
  EXPECT_THAT(group_->waitAny({1}, 5).status().message(), HasSubstr("waiting for 1 devices, the group has 2"));
  EXPECT_THAT(group_->waitAny({0, 0}, core::kForeverNs).status().message(), HasSubstr("no device and no time"));
  EXPECT_THAT(group_->waitAny({0, 1}, 5).status().message(), HasSubstr("iteration 1: 0 were launched"));
  for (int n = 0; n < 3; ++n)
    launch(1);
  EXPECT_EQ(group_->waitAny({0, 1}, 5).status().code(), absl::StatusCode::kOutOfRange);
  for (const double bandwidth : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")}) {
    const absl::Status status = group_->setBusBandwidth(bandwidth);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("bus bandwidth"));
  }
  EXPECT_THAT(makeSimGroup(0, {}).status().message(), HasSubstr("no devices"));
  EXPECT_THAT(makeSimGroup(2, {-1e9}).status().message(), HasSubstr("bus bandwidth -1e+09"));
  EXPECT_THAT(makeSimGroup(2, {1e9, 1e9, std::nan("")}).status().message(), HasSubstr("bus bandwidth nan"));
}

// Launches and waits at random on both: the same times to the nanosecond, whether the bus has no limit or that of the
// link.
RC_GTEST_PROP(SimGroupProperty, ADeviceAloneHasTheTimesOfTheSimDevice, ()) {
  plan::Plan plan = smallPlan();
  model::Hardware &hardware = plan.hardware;
  const double rate = 1 + below(80) / 7.0; // bytes/ns
  hardware.h2dBandwidth = hardware.d2hBandwidth = rate * 1e9;
  hardware.duplexBandwidth = hardware.h2dBandwidth * (1 + below(11) / 10.0);
  hardware.copyLatency = below(30) * 1e-9;
  if (below(2) == 0) // of host memory that both directions and the CPU may exhaust
    hardware.cpu = {.cores = 1 + below(4),
                    .flops = 1e9,
                    .memoryBandwidth = (1 + below(40)) * 1e9,
                    .coreBandwidth = (1 + below(8)) * 1e9};
  const bool busOfTheLink = below(2) == 0;
  plan.schedules.clear();
  const HandMade made[] = {randomSchedule(0, 100000, /*cpuOften=*/true), randomSchedule(0, 100000)};
  for (const HandMade &m : made)
    plan.schedules.push_back(m.schedule);
  plan.variants[0].durationsNs = made[0].durations;
  plan.transitions[0].durationsNs = made[1].durations;
  if (busOfTheLink)
    for (size_t s = 0; s < 2; ++s)
      for (size_t i = 0; i < made[s].durations.size(); ++i)
        if (const uint64_t bytes = plan.schedules[s].steps[i].linkBytes; bytes != 0) // as they are priced
          (s == 0 ? plan.variants[0].durationsNs : plan.transitions[0].durationsNs)[i] =
              static_cast<uint64_t>(std::llround(hardware.copyLatency * 1e9 + static_cast<double>(bytes) / rate));
  const core::DeviceOptions options{.linkBandwidth = busOfTheLink || below(2) == 0 ? 0 : (1 + below(9)) * 1e9,
                                    .trace = true};

  const auto group = *makeSimGroup(1, busOfTheLink ? core::PathLimits{hardware.h2dBandwidth} : core::PathLimits{});
  const auto alone = makeSimDevice();
  core::Device *const devices[] = {&group->device(0), alone.get()};
  std::unique_ptr<core::Graph> graphs[2][2];
  for (size_t d = 0; d < 2; ++d) {
    RC_ASSERT(devices[d]->open(plan, options).ok());
    RC_ASSERT(devices[d]->reserveSwap(500).ok());
    for (size_t g = 0; g < 2; ++g) {
      graphs[d][g] = *devices[d]->build({.transition = g == 1, .index = 0});
      RC_ASSERT(devices[d]->upload(*graphs[d][g]).ok());
    }
  }
  uint64_t launched = 0;
  for (int n = below(30); n >= 0; --n) {
    const int what = below(7);
    const core::BlockCopy beside{.toDevice = below(2) == 0, .bytes = static_cast<uint64_t>(1 + below(500))};
    for (size_t d = 0; d < 2; ++d) {
      core::Device &device = *devices[d];
      if (what == 6) {
        RC_ASSERT(device.copyBeside({{beside}}).ok());
        continue;
      }
      if (what < 2)
        fillSmall(device, 1, 1);
      if (what < 3)
        RC_ASSERT(device.launch(*graphs[d][what == 2]).ok());
      else if (what < 5 && launched > 0)
        RC_ASSERT(device.awaitTokens(launched).ok());
      else
        RC_ASSERT(device.drain().ok());
    }
    launched += what < 2;
    RC_ASSERT(devices[0]->nowNs() == devices[1]->nowNs());
  }
  for (core::Device *device : devices)
    RC_ASSERT(device->drain().ok());
  RC_ASSERT(devices[0]->nowNs() == devices[1]->nowNs());
  RC_ASSERT(devices[0]->tokensVisibleNs(launched) == devices[1]->tokensVisibleNs(launched));
  RC_ASSERT(devices[0]->counters().stallNs == devices[1]->counters().stallNs);
  RC_ASSERT(devices[0]->lastTimes().size() == devices[1]->lastTimes().size());
  for (size_t i = 0; i < devices[0]->lastTimes().size(); ++i) {
    RC_ASSERT(devices[0]->lastTimes()[i].startNs == devices[1]->lastTimes()[i].startNs);
    RC_ASSERT(devices[0]->lastTimes()[i].endNs == devices[1]->lastTimes()[i].endNs);
  }
}

} // namespace
} // namespace headrace::sim
