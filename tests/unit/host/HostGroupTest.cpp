// SPDX-License-Identifier: Apache-2.0
//
// What only a group of host devices does; what all groups do is in tests/conformance.
#include "runtime/host/HostGroup.h"

#include <gtest/gtest.h>

#include <ctime>

#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "tests/support/TinyPlan.h"

namespace headrace::host {
namespace {

class HostGroupTest : public testing::Test {
protected:
  void group(size_t devices, double busBandwidth, const HostOptions &options = {}) {
    auto made = makeHostGroup(std::vector<HostOptions>(devices, options), busBandwidth);
    ASSERT_TRUE(made.ok()) << made.status();
    group_ = *std::move(made);
    const auto weights = model::syntheticWeights(1);
    for (size_t d = 0; d < devices; ++d) {
      auto runtime = core::Runtime::load(plan_, group_->device(d), {.linkBandwidth = 1e9}, weights.get(), {});
      ASSERT_TRUE(runtime.ok()) << runtime.status();
      runtimes_.push_back(*std::move(runtime));
    }
  }
  void launch(size_t d) {
    const int32_t token = 1, block = 1;
    const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    ASSERT_TRUE(core::writeMeta(plan_.metaLayout, plan_.blockTokens, {&rows, 1}, group_->device(d).meta()).ok());
    ASSERT_TRUE(runtimes_[d]->launch(0).ok());
  }

  plan::Plan plan_ = core::tinyPlan({.spec = core::tinyLlama(4), .offloaded = {1, 3}});
  std::unique_ptr<core::DeviceGroup> group_;
  std::vector<std::unique_ptr<core::Runtime>> runtimes_; // before the group goes
};

// No machine is so slow that copies arrive before the bus can have carried them.
TEST_F(HostGroupTest, CopiesOfAllDevicesTogetherTakeTheBussTime) {
  constexpr double kBus = 0.05e9; // a twentieth of each link
  group(2, kBus);
  (void)group_->sampleBusBandwidth();
  const int64_t start = group_->nowNs();
  for (int n = 0; n < 5; ++n)
    for (size_t d = 0; d < 2; ++d)
      launch(d);
  double bytes = 0;
  for (size_t d = 0; d < 2; ++d) {
    ASSERT_TRUE(group_->device(d).drain().ok());
    bytes += static_cast<double>(group_->device(d).counters().h2dBytes);
  }
  EXPECT_EQ(bytes, 10.0 * static_cast<double>(plan::linkBytes(plan_.schedules[0]).h2d));
  EXPECT_GE(static_cast<double>(group_->nowNs() - start), bytes / kBus * 1e9);
  EXPECT_NEAR(group_->sampleBusBandwidth(), kBus, kBus * 1e-6); // slowed all the time: what there was
  EXPECT_EQ(group_->sampleBusBandwidth(), 0);
}

TEST_F(HostGroupTest, ABusThatIsWideEnoughSlowsNothing) {
  group(2, 10e9);
  for (size_t d = 0; d < 2; ++d)
    launch(d);
  for (size_t d = 0; d < 2; ++d)
    ASSERT_TRUE(group_->device(d).drain().ok());
  EXPECT_EQ(group_->sampleBusBandwidth(), 0);
}

TEST_F(HostGroupTest, ALossOfBandwidthCountsFromTheMiddleOfACopy) {
  group(1, 1e9);
  const auto bytes = static_cast<double>(plan::linkBytes(plan_.schedules[0]).h2d);
  ASSERT_TRUE(group_->setBusBandwidth(bytes / 1000).ok()); // the iteration's copies would take 1,000 s
  launch(0);
  EXPECT_EQ(*group_->waitAny(std::vector<uint64_t>{1}, group_->nowNs() + 5'000'000), 1u); // not there
  ASSERT_TRUE(group_->setBusBandwidth(1e9).ok());
  EXPECT_EQ(*group_->waitAny(std::vector<uint64_t>{1}, core::kForeverNs), 0u);
}

// 100 ms of waiting for something that does not come, in the processor time of the thread that waits.
TEST_F(HostGroupTest, WaitingDoesNotSpin) {
  group(2, 1e9);
  const auto cpuNs = [] {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  };
  ASSERT_TRUE(group_->setBusBandwidth(1).ok()); // bytes/s
  launch(0);
  const int64_t before = cpuNs();
  EXPECT_EQ(*group_->waitAny(std::vector<uint64_t>{1, 0}, group_->nowNs() + 100'000'000), 2u);
  EXPECT_LT(cpuNs() - before, 20'000'000);
  ASSERT_TRUE(group_->setBusBandwidth(1e9).ok());
}

// Four threads for two devices: each has one of its own and the two others help whichever has work, so that no step,
// of the cpu lane neither, has more than three.
TEST_F(HostGroupTest, DevicesShareTheThreadsThatOneStates) {
  group(2, 1e9, {.threads = 4});
  for (size_t d = 0; d < 2; ++d)
    EXPECT_EQ(group_->device(d).threads(), 3);
}

TEST_F(HostGroupTest, DevicesMayBePinned) {
  const HostOptions devices[] = {{.computeCore = 0, .transferCore = 0}, {.computeCore = 0}, {.transferCore = 1 << 20}};
  auto made = makeHostGroup(devices, 1e9);
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE((*made)->device(0).open(plan_, {}).ok());
  EXPECT_TRUE((*made)->device(1).open(plan_, {}).ok());
  EXPECT_EQ((*made)->device(2).open(plan_, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE((*made)->device(1).open(plan_, {}).ok()); // the others still have the thread running
}

} // namespace
} // namespace headrace::host
