// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/SimDevice.h"

#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/sim/SmallPlan.h"

namespace headrace::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class SimDeviceTest : public testing::Test {
protected:
  void open(core::DeviceOptions options = {}) {
    ASSERT_TRUE(device->open(plan, options).ok());
    iteration = make({.transition = false, .index = 0});
    transition = make({.transition = true, .index = 0});
  }
  std::unique_ptr<core::Graph> make(core::GraphKey key) {
    auto graph = device->build(key);
    EXPECT_TRUE(graph.ok()) << graph.status();
    EXPECT_TRUE(device->upload(**graph).ok());
    return *std::move(graph);
  }
  void fill(int32_t position0, int32_t position1) { fillSmall(*device, position0, position1); }

  plan::Plan plan = smallPlan();
  std::unique_ptr<core::Device> device = makeSimDevice();
  std::unique_ptr<core::Graph> iteration, transition;
};

TEST_F(SimDeviceTest, HoldsNoDataAndCountsThePlansMemory) {
  open();
  EXPECT_EQ(device->kind(), "sim");
  EXPECT_FALSE(device->holdsData());
  EXPECT_TRUE(device->hostSlab().empty());
  EXPECT_EQ(device->counters().peakDeviceBytes, 600u);
  EXPECT_EQ(device->counters().hostBytes, 700u);
}

TEST_F(SimDeviceTest, ALaunchTakesNoTimeAndWaitingMovesTheClock) {
  open();
  fill(1, 1);
  ASSERT_TRUE(device->launch(*iteration).ok());
  EXPECT_EQ(device->nowNs(), 0);
  ASSERT_TRUE(device->awaitTokens(1).ok());
  EXPECT_EQ(device->nowNs(), 10); // the tokens come before the tail copy
  EXPECT_EQ(device->tokensVisibleNs(1), 10);
  ASSERT_TRUE(device->drain().ok());
  EXPECT_EQ(device->nowNs(), 50);
}

TEST_F(SimDeviceTest, LaunchesRunOneAfterAnother) {
  open();
  fill(1, 1);
  ASSERT_TRUE(device->launch(*iteration).ok());
  fill(2, 2);
  ASSERT_TRUE(device->launch(*iteration).ok());
  EXPECT_EQ(device->nowNs(), 0); // two may be in flight
  ASSERT_TRUE(device->awaitTokens(2).ok());
  EXPECT_EQ(device->nowNs(), 60); // behind the first's 50
}

TEST_F(SimDeviceTest, AThirdIterationWaitsForTheStagingCopyOfTheFirst) {
  open();
  for (int i = 1; i <= 2; ++i) {
    fill(i, i);
    ASSERT_TRUE(device->launch(*iteration).ok());
  }
  device->meta();
  EXPECT_EQ(device->nowNs(), 50); // the first has ended
}

TEST_F(SimDeviceTest, StagingCopiesKeepTheirOffsetsAndWhatWasWrittenTwoIterationsAgo) {
  open();
  fill(11, 12);
  ASSERT_TRUE(device->launch(*iteration).ok());
  fill(21, 22);
  ASSERT_TRUE(device->launch(*iteration).ok());
  kernels::IterationMeta *meta = device->meta();
  EXPECT_EQ(meta->iteration, 1u);
  EXPECT_EQ(meta->tableStride, 2);
  EXPECT_EQ(meta->array<int32_t>(meta->samplePosition)[1], 12);
}

TEST_F(SimDeviceTest, TransitionsTakeTheirTimeAndAreNoIterations) {
  open();
  ASSERT_TRUE(device->launch(*transition).ok());
  fill(1, 1);
  ASSERT_TRUE(device->launch(*iteration).ok());
  ASSERT_TRUE(device->awaitTokens(1).ok());
  EXPECT_EQ(device->nowNs(), 35); // 25 of copies, then 10
  EXPECT_EQ(device->counters().launches, 2u);
  EXPECT_EQ(device->counters().h2dBytes, 65u);
}

// 100 bytes each, one behind the other. While the second copy is under way a transition has 25: the link has moved all
// of them at 225.
TEST_F(SimDeviceTest, WaitingForACopyBesideLeavesThoseBehindItToWhatIsLaunchedNext) {
  open();
  ASSERT_TRUE(device->reserveSwap(200).ok());
  const auto first = device->copyBeside({{core::BlockCopy{true, 0, 0, 100}}});
  const auto second = device->copyBeside({{core::BlockCopy{true, 100, 100, 100}}});
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  ASSERT_TRUE(device->awaitCopied(*first).ok());
  EXPECT_EQ(device->nowNs(), 100);
  ASSERT_TRUE(device->launch(*transition).ok());
  ASSERT_TRUE(device->awaitCopied(*second).ok());
  EXPECT_EQ(device->nowNs(), 225);
}

TEST_F(SimDeviceTest, TokensDependOnTheRequestAndThePositionAlone) {
  open();
  fill(3, 9);
  ASSERT_TRUE(device->launch(*iteration).ok());
  auto tokens = device->awaitTokens(1);
  ASSERT_TRUE(tokens.ok());
  EXPECT_THAT(*tokens, ElementsAre(madeUpToken(5, 3, 100), madeUpToken(6, 9, 100)));
  for (uint32_t position = 0; position < 1000; ++position) {
    ASSERT_GE(madeUpToken(5, position, 100), 0);
    ASSERT_LT(madeUpToken(5, position, 100), 100);
  }
  EXPECT_NE(madeUpToken(5, 3, 1 << 30), madeUpToken(5, 4, 1 << 30));
  EXPECT_NE(madeUpToken(5, 3, 1 << 30), madeUpToken(6, 3, 1 << 30));
}

TEST_F(SimDeviceTest, TokensThatWereNotLaunchedOrAreGoneAreRefused) {
  open();
  EXPECT_EQ(device->awaitTokens(1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(device->awaitTokens(0).status().code(), absl::StatusCode::kFailedPrecondition);
  for (int i = 1; i <= 3; ++i) {
    fill(i, i);
    ASSERT_TRUE(device->launch(*iteration).ok());
  }
  EXPECT_TRUE(device->awaitTokens(2).ok());
  EXPECT_EQ(device->awaitTokens(1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(device->tokensVisibleNs(1), -1);
}

TEST_F(SimDeviceTest, ALinkBandwidthRescalesCopiesAndLeavesComputeAlone) {
  open({.linkBandwidth = 0.5e9}); // half the profile's: 40 bytes take 80 ns
  fill(1, 1);
  ASSERT_TRUE(device->launch(*iteration).ok());
  ASSERT_TRUE(device->drain().ok());
  EXPECT_EQ(device->nowNs(), 90);
}

TEST_F(SimDeviceTest, RescalingKeepsLatencyAndLaunchOverhead) {
  HandMade made;
  made.h2d(110);
  made.d2h(60);
  made.compute(30);
  made.compute(30);
  made.schedule.steps[3].direct = true;
  model::Hardware hardware;
  hardware.h2dBandwidth = 4e9;
  hardware.d2hBandwidth = 2e9;
  hardware.linkEfficiency = 0.5;
  hardware.copyLatency = 10e-9;
  hardware.launchOverhead = 5e-9;
  // At 1 byte/ns: h2d had 4 x 0.5 = 2, so 10 + 100 x 2; d2h had 1, unchanged; the direct step 5 + 25 x 2.
  EXPECT_THAT(pacedDurations(made.schedule, made.durations, hardware, 1e9), ElementsAre(210, 60, 30, 55));
  EXPECT_EQ(pacedDurations(made.schedule, made.durations, hardware, 0), made.durations);
}

// A direct write of 100 bytes where the link has 2 x 0.5 = 1 byte/ns towards the host, 5 ns to launch it: bound by the
// link (105), in a variant of fewer rows (30), and bound by what it computes (150).
TEST_F(SimDeviceTest, ADirectWriteIsRescaledByTheLinkTowardsTheHost) {
  HandMade made;
  for (const uint64_t ns : {105, 30, 150}) {
    const uint32_t step = made.compute(ns);
    made.schedule.steps[step].direct = true;
    made.schedule.steps[step].linkBytes = 100;
    made.schedule.steps[step].firstOperand = step, made.schedule.steps[step].operandCount = 1;
    made.schedule.operands.push_back(
        {.space = plan::Space::Host, .access = plan::Access::ReadWrite, .arg = plan::Arg::KvHome});
  }
  model::Hardware hardware;
  hardware.h2dBandwidth = 8e9;
  hardware.d2hBandwidth = 2e9;
  hardware.linkEfficiency = 0.5;
  hardware.launchOverhead = 5e-9;
  // At half a byte/ns: 5 + 100 x 2, 5 + 25 x 2, and 5 + 200 as it is longer than 150.
  EXPECT_THAT(pacedDurations(made.schedule, made.durations, hardware, 0.5e9), ElementsAre(205, 55, 205));
  // At 5 bytes/ns: 5 + 100 / 5, 5 + 25 / 5; computing is no faster.
  EXPECT_THAT(pacedDurations(made.schedule, made.durations, hardware, 5e9), ElementsAre(25, 10, 150));
}

TEST_F(SimDeviceTest, ADirectWriteOccupiesTheComputeLaneAndCountsTowardsTheHost) {
  plan::Schedule &schedule = plan.schedules[plan.variants[0].schedule];
  schedule.steps[0].direct = true;
  schedule.steps[0].linkBytes = 7;
  schedule.steps[0].operandCount = 1;
  schedule.operands = {{.space = plan::Space::Host, .access = plan::Access::ReadWrite, .arg = plan::Arg::KvHome}};
  open();
  fill(1, 1);
  ASSERT_TRUE(device->launch(*iteration).ok());
  ASSERT_TRUE(device->drain().ok());
  EXPECT_EQ(device->tokensVisibleNs(1), 10); // what the step was priced
  EXPECT_EQ(device->nowNs(), 50);
  EXPECT_EQ(device->counters().h2dBytes, 40u);
  EXPECT_EQ(device->counters().d2hBytes, 7u);
}

// A row is 2 (k, v) x 16 x 2 bytes = 64 bytes, and the home begins with block 2 of 4 tokens: at slot 8.
TEST_F(SimDeviceTest, CountsTheRowsThatAreAppendedToTheHost) {
  plan.model->kvHeads = 1;
  plan.model->headDim = 16;
  plan.blockTokens = 4;
  plan.kvEncoding = model::DType::F16;
  plan::Schedule &schedule = plan.schedules[plan.variants[0].schedule];
  plan::Step &append = schedule.steps[0];
  append.op = kernels::Op::RopeAppend;
  append.direct = true;
  append.linkBytes = 8 * 64; // the bucket's rows
  append.operandCount = 1;
  plan::Operand home{.space = plan::Space::Host, .access = plan::Access::ReadWrite, .arg = plan::Arg::KvHome};
  home.bufferOffset = 512;
  home.bytes = 1024; // slots 8 to 23
  schedule.operands = {home};
  open();
  for (const auto &[first, second, bytes] : {std::tuple(6, 7, 0U), std::tuple(7, 8, 64U), std::tuple(8, 20, 128U)}) {
    const uint64_t before = device->counters().d2hBytes;
    fill(1, 1);
    kernels::IterationMeta *meta = device->meta();
    meta->array<int32_t>(meta->kvSlot)[0] = first;
    meta->array<int32_t>(meta->kvSlot)[1] = second;
    ASSERT_TRUE(device->launch(*iteration).ok());
    EXPECT_EQ(device->counters().d2hBytes - before, bytes) << first;
  }
  EXPECT_EQ(device->counters().h2dBytes, 3 * 40u);
}

TEST_F(SimDeviceTest, TracesTheStepsOfTheLastLaunchOnTheDevicesClock) {
  open({.trace = true});
  for (int i = 1; i <= 2; ++i) {
    fill(i, i);
    ASSERT_TRUE(device->launch(*iteration).ok());
  }
  const auto times = device->lastTimes();
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0].startNs, 50);
  EXPECT_EQ(times[2].startNs, 60);
  EXPECT_EQ(times[2].endNs, 100);
}

TEST_F(SimDeviceTest, WithoutATraceThereAreNoStepTimes) {
  open();
  fill(1, 1);
  ASSERT_TRUE(device->launch(*iteration).ok());
  EXPECT_TRUE(device->lastTimes().empty());
}

TEST_F(SimDeviceTest, RefusesAPlanThatTheHardwareCannotHoldNamingTheNumbers) {
  plan.arenaBytes = 1001;
  absl::Status status = device->open(plan, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("1001 bytes of device memory, round has 1000"));
  plan.arenaBytes = 600;
  plan.hostBytes = 2001;
  status = device->open(plan, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("2001 bytes of host memory, round has 2000"));
}

TEST_F(SimDeviceTest, RefusesWhatDoesNotFitTheVariant) {
  open();
  fill(1, 1);
  device->meta()->numTokens = 9;
  const absl::Status status = device->launch(*iteration);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("9 tokens of 2 sequences"));
  EXPECT_EQ(device->counters().launches, 0u);
}

TEST_F(SimDeviceTest, RefusesMisuseByName) {
  EXPECT_EQ(device->build({}).status().code(), absl::StatusCode::kFailedPrecondition); // nothing open
  open();
  EXPECT_THAT(device->build({.index = 1}).status().message(), HasSubstr("variant 1 to build, the plan has 1"));
  EXPECT_THAT(device->build({.transition = true, .index = 7}).status().message(), HasSubstr("transition 7"));
  auto notUploaded = device->build({});
  ASSERT_TRUE(notUploaded.ok());
  EXPECT_THAT(device->launch(**notUploaded).message(), HasSubstr("not uploaded"));
  std::byte bytes[8] = {};
  EXPECT_TRUE(device->writeDevice(592, bytes).ok());
  EXPECT_EQ(device->writeDevice(593, bytes).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(device->readDevice(0, absl::MakeSpan(bytes)).code(), absl::StatusCode::kFailedPrecondition);
  auto other = makeSimDevice();
  ASSERT_TRUE(other->open(plan, {}).ok());
  EXPECT_THAT(other->launch(*iteration).message(), HasSubstr("another device"));
  ASSERT_TRUE(device->open(plan, {}).ok());
  EXPECT_THAT(device->launch(*iteration).message(), HasSubstr("another plan"));
  EXPECT_THAT(device->open(plan, {.linkBandwidth = -1}).message(), HasSubstr("link bandwidth -1"));
}

} // namespace
} // namespace headrace::sim
