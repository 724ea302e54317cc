// SPDX-License-Identifier: Apache-2.0
//
// What every device must do, whatever it is made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/support/TinyPlan.h"

namespace headrace::core {
namespace {

using testing::HasSubstr;

class DeviceConformance : public testing::TestWithParam<DeviceUnderTest> {
protected:
  DeviceConformance()
      : plan_(tinyPlan({.spec = tinyLlama(4), .offloaded = {1, 3}, .wrap = true, .kind = GetParam().plansFor})),
        device_(GetParam().make()) {}

  void open(bool trace = false) {
    const absl::Status status = device_->open(plan_, {.trace = trace});
    ASSERT_TRUE(status.ok()) << status;
  }
  // A graph that is ready to launch. Weights are whatever memory holds: only Runtime tests look at values.
  Graph &ready(const GraphKey &key) {
    auto graph = device_->build(key);
    EXPECT_TRUE(graph.ok()) << graph.status();
    graphs_.push_back(*std::move(graph));
    const absl::Status status = device_->upload(*graphs_.back());
    EXPECT_TRUE(status.ok()) << status;
    return *graphs_.back();
  }
  // `sequences` decode rows, all sampled.
  void fillMeta(int64_t sequences) {
    static const int32_t kToken = 1, kBlocks[] = {1, 2, 3};
    std::vector<SequenceRows> rows;
    for (int64_t s = 0; s < sequences; ++s)
      rows.push_back({.tokens = {&kToken, 1},
                      .blocks = {&kBlocks[s], 1},
                      .sample = true,
                      .requestSlot = static_cast<int32_t>(s),
                      .seed = static_cast<uint64_t>(s)});
    const absl::Status status = writeMeta(plan_.metaLayout, plan_.blockTokens, rows, device_->meta());
    ASSERT_TRUE(status.ok()) << status;
  }
  void launch(Graph &graph, int64_t sequences = 2) {
    fillMeta(sequences);
    const absl::Status status = device_->launch(graph);
    ASSERT_TRUE(status.ok()) << status;
  }

  plan::Plan plan_;
  std::vector<std::unique_ptr<Graph>> graphs_; // they outlive the launches that the device may still run
  std::shared_ptr<Device> device_;
};

TEST_P(DeviceConformance, NothingWorksBeforeOpen) {
  EXPECT_EQ(device_->build({}).status().code(), absl::StatusCode::kFailedPrecondition);
  std::byte byte{};
  EXPECT_EQ(device_->writeDevice(0, {&byte, 1}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(device_->readDevice(0, {&byte, 1}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(device_->awaitTokens(1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(device_->lastTimes().empty());
  EXPECT_EQ(device_->tokensVisibleNs(1), -1);
}

TEST_P(DeviceConformance, OpenTakesExactlyThePlansBytes) {
  open();
  EXPECT_EQ(device_->counters().peakDeviceBytes, plan_.arenaBytes);
  EXPECT_EQ(device_->counters().hostBytes, plan_.hostBytes);
  EXPECT_EQ(device_->hostSlab().size(), device_->holdsData() ? plan_.hostBytes : 0);
  EXPECT_EQ(device_->counters().launches, 0u);
}

// Tails of caches end where their last block does.
TEST_P(DeviceConformance, OpenTakesHostMemoryOfAnySize) {
  plan_.hostBytes += 64;
  open();
  EXPECT_EQ(device_->counters().hostBytes, plan_.hostBytes);
  EXPECT_EQ(device_->hostSlab().size(), device_->holdsData() ? plan_.hostBytes : 0);
  if (device_->holdsData())
    device_->hostSlab().back() = std::byte{1};
}

TEST_P(DeviceConformance, OpenFailsWithTheNumberWhereMemoryLacks) {
  plan::Plan large = plan_;
  large.arenaBytes = uint64_t{1} << 55;
  const absl::Status device = device_->open(large, {});
  EXPECT_EQ(device.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(device.message()), HasSubstr("36028797018963968"));
  large = plan_;
  large.hostBytes = uint64_t{1} << 55;
  const absl::Status host = device_->open(large, {});
  EXPECT_EQ(host.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(host.message()), HasSubstr("36028797018963968"));
  open(); // and can be opened after a failure
}

TEST_P(DeviceConformance, BuildsWhatThePlanHasAndNothingElse) {
  open();
  for (uint32_t i = 0; i < plan_.variants.size(); ++i)
    EXPECT_TRUE(device_->build({.transition = false, .index = i}).ok());
  for (uint32_t i = 0; i < plan_.transitions.size(); ++i)
    EXPECT_TRUE(device_->build({.transition = true, .index = i}).ok());
  const auto variant = device_->build({.transition = false, .index = 2});
  EXPECT_EQ(variant.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(variant.status().message()), HasSubstr("variant 2 to build, the plan has 2"));
  EXPECT_THAT(std::string(device_->build({.transition = true, .index = 1}).status().message()),
              HasSubstr("transition 1 to build, the plan has 1"));
}

TEST_P(DeviceConformance, GraphsAreUploadedBeforeTheyAreLaunched) {
  open();
  auto graph = device_->build({});
  ASSERT_TRUE(graph.ok());
  fillMeta(1);
  EXPECT_EQ(device_->launch(**graph).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(device_->counters().launches, 0u);
}

TEST_P(DeviceConformance, GraphsOfAnotherDeviceOrAnEarlierPlanAreRefused) {
  open();
  Graph &graph = ready({});
  const auto other = GetParam().make();
  ASSERT_TRUE(other->open(plan_, {}).ok());
  EXPECT_EQ(other->upload(graph).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(other->launch(graph).code(), absl::StatusCode::kInvalidArgument);
  open();
  EXPECT_EQ(device_->launch(graph).code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(DeviceConformance, ShapesBeyondTheVariantsBucketAreRefused) {
  open();
  Graph &graph = ready({});
  for (int32_t kernels::IterationMeta::*field :
       {&kernels::IterationMeta::numTokens, &kernels::IterationMeta::numSequences, &kernels::IterationMeta::numSampled})
    for (int32_t value : {-1, 4}) { // the bucket is 3 of 3
      fillMeta(1);
      device_->meta()->*field = value;
      EXPECT_EQ(device_->launch(graph).code(), absl::StatusCode::kInvalidArgument);
    }
  EXPECT_EQ(device_->counters().launches, 0u);
  launch(graph, 3);
}

// Before anything is launched: the plan's caches and attention's scratch are for the variant's context.
TEST_P(DeviceConformance, IterationsLongerThanTheVariantsContextAreRefused) {
  open();
  Graph &graph = ready({});
  for (int32_t length : {-1, 41}) { // the context is 40
    fillMeta(2);
    kernels::IterationMeta &meta = *device_->meta();
    meta.array<int32_t>(meta.contextLength)[1] = length;
    const absl::Status refused = device_->launch(graph);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("sequence 1 of 2 is " + std::to_string(length) +
                          " tokens long with this iteration's, the variant's context is 40"));
  }
  EXPECT_EQ(device_->counters().launches, 0u);
  launch(graph, 2);
}

TEST_P(DeviceConformance, TokensComeOnePerSampledRowInTheOrderOfLaunches) {
  open();
  Graph &graph = ready({});
  for (uint64_t n = 1; n <= 6; ++n) {
    launch(graph, 1 + static_cast<int64_t>(n % 3));
    const auto tokens = device_->awaitTokens(n);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(tokens->size(), 1 + n % 3);
  }
}

TEST_P(DeviceConformance, TwoIterationsAreInFlight) {
  open();
  Graph &graph = ready({});
  launch(graph, 1);
  launch(graph, 2);
  const auto first = device_->awaitTokens(1);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->size(), 1u);
  const auto second = device_->awaitTokens(2);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->size(), 2u);
  EXPECT_LT(device_->tokensVisibleNs(1), device_->tokensVisibleNs(2));
}

TEST_P(DeviceConformance, MoreLaunchesThanFitWaitForRoom) {
  open();
  Graph &graph = ready({});
  for (int i = 0; i < 40; ++i)
    launch(graph, 1 + i % 3);
  const auto tokens = device_->awaitTokens(40);
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(tokens->size(), 1u); // 39 % 3 == 0
}

TEST_P(DeviceConformance, TheTwoStagingCopiesAreDistinct) {
  open();
  Graph &graph = ready({});
  kernels::IterationMeta *first = device_->meta();
  launch(graph);
  kernels::IterationMeta *second = device_->meta();
  EXPECT_NE(first, second);
  launch(graph);
  EXPECT_EQ(device_->meta(), first);
  EXPECT_EQ(first->iteration, 1u);
  EXPECT_EQ(second->iteration, 2u);
}

TEST_P(DeviceConformance, TokensNotLaunchedOrGoneAreRefused) {
  open();
  Graph &graph = ready({});
  EXPECT_EQ(device_->awaitTokens(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(device_->awaitTokens(1).status().code(), absl::StatusCode::kFailedPrecondition);
  for (int i = 0; i < 3; ++i)
    launch(graph);
  EXPECT_EQ(device_->awaitTokens(4).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(device_->awaitTokens(1).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(device_->tokensVisibleNs(1), -1);
  EXPECT_TRUE(device_->awaitTokens(2).ok());
  EXPECT_TRUE(device_->awaitTokens(3).ok());
}

TEST_P(DeviceConformance, TransitionsAreLaunchesButNotIterations) {
  open();
  Graph &transition = ready({.transition = true, .index = 0}), &variant = ready({});
  ASSERT_TRUE(device_->launch(transition).ok());
  EXPECT_EQ(device_->awaitTokens(1).status().code(), absl::StatusCode::kFailedPrecondition);
  launch(variant);
  ASSERT_TRUE(device_->launch(transition).ok());
  launch(variant);
  EXPECT_TRUE(device_->awaitTokens(2).ok());
  ASSERT_TRUE(device_->drain().ok());
  EXPECT_EQ(device_->counters().launches, 4u);
}

TEST_P(DeviceConformance, CountersAddUpWhatTheSchedulesMove) {
  open();
  Graph &decode = ready({.transition = false, .index = 0}), &mixed = ready({.transition = false, .index = 1}),
        &transition = ready({.transition = true, .index = 0});
  ASSERT_TRUE(device_->launch(transition).ok());
  launch(mixed);
  launch(decode);
  launch(decode);
  ASSERT_TRUE(device_->drain().ok());
  uint64_t h2d = 0;
  for (uint32_t schedule : {2, 1, 0, 0})
    h2d += plan::linkBytes(plan_.schedules[schedule]).h2d;
  EXPECT_EQ(device_->counters().h2dBytes, h2d);
  EXPECT_EQ(device_->counters().d2hBytes, 0u);
  EXPECT_EQ(device_->counters().launches, 4u);
  EXPECT_GE(device_->counters().stallNs, 0);
}

TEST_P(DeviceConformance, TheClockDoesNotGoBackAndHasReachedWhatWasAwaited) {
  open();
  Graph &graph = ready({});
  int64_t now = device_->nowNs();
  const auto later = [&] {
    EXPECT_GE(device_->nowNs(), now);
    now = device_->nowNs();
  };
  for (uint64_t n = 1; n <= 5; ++n) {
    const int64_t launched = now;
    launch(graph);
    later();
    ASSERT_TRUE(device_->awaitTokens(n).ok());
    later();
    EXPECT_GE(now, device_->tokensVisibleNs(n));
    EXPECT_GT(device_->tokensVisibleNs(n), launched);
  }
  ASSERT_TRUE(device_->drain().ok());
  later();
}

// Also before anything is open.
TEST_P(DeviceConformance, TimePassesToWhereItIsWaitedFor) {
  const auto wait = [&](int64_t ns) {
    const absl::Status waited = device_->waitUntil(ns);
    EXPECT_TRUE(waited.ok()) << waited;
    EXPECT_GE(device_->nowNs(), ns);
    if (!device_->holdsData()) {
      EXPECT_EQ(device_->nowNs(), ns);
    }
  };
  wait(device_->nowNs());
  wait(device_->nowNs() + 1);
  open();
  wait(device_->nowNs() + 300'000);
  const int64_t before = device_->nowNs();
  EXPECT_TRUE(device_->waitUntil(before - 1000).ok());
  EXPECT_TRUE(device_->waitUntil(0).ok());
  if (!device_->holdsData()) {
    EXPECT_EQ(device_->nowNs(), before);
  }
}

// What is in flight ends when it would have ended; the caller hears of it later.
TEST_P(DeviceConformance, LaunchesRunOnWhileTimePasses) {
  const auto visibleNs = [&](bool passes) {
    open();
    const int64_t openedNs = device_->nowNs();
    EXPECT_TRUE(device_->launch(ready({.transition = true, .index = 0})).ok());
    launch(ready({}));
    if (passes) {
      EXPECT_TRUE(device_->waitUntil(openedNs + 20'000'000).ok());
    }
    const int64_t askedNs = device_->nowNs();
    const auto tokens = device_->awaitTokens(1);
    EXPECT_TRUE(tokens.ok() && tokens->size() == 2);
    if (passes && !device_->holdsData()) {
      EXPECT_EQ(device_->nowNs(), askedNs); // they had come
    }
    const int64_t ns = device_->tokensVisibleNs(1) - openedNs;
    EXPECT_TRUE(device_->drain().ok());
    return ns;
  };
  const int64_t ns = visibleNs(false), passedNs = visibleNs(true);
  if (!device_->holdsData()) {
    EXPECT_EQ(passedNs, ns);
    EXPECT_LT(passedNs, 20'000'000);
  }
}

TEST_P(DeviceConformance, WritesOutsideTheArenaAreRefused) {
  open();
  std::vector<std::byte> bytes(256);
  EXPECT_EQ(device_->writeDevice(plan_.arenaBytes - 255, bytes).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(device_->writeDevice(~uint64_t{0} - 10, bytes).code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(device_->writeDevice(plan_.arenaBytes - 256, bytes).ok());
}

TEST_P(DeviceConformance, ReadsGiveWhatWasWritten) {
  open();
  std::vector<std::byte> written(256), read(256);
  std::generate(written.begin(), written.end(), [n = 0]() mutable { return static_cast<std::byte>(n++); });
  const uint64_t address = plan_.arenaBytes - 256;
  ASSERT_TRUE(device_->writeDevice(address, written).ok());
  if (!device_->holdsData()) {
    EXPECT_EQ(device_->readDevice(address, absl::MakeSpan(read)).code(), absl::StatusCode::kFailedPrecondition);
    return;
  }
  ASSERT_TRUE(device_->readDevice(address, absl::MakeSpan(read)).ok());
  EXPECT_EQ(read, written);
  EXPECT_EQ(device_->readDevice(address + 1, absl::MakeSpan(read)).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(device_->readDevice(~uint64_t{0} - 10, absl::MakeSpan(read)).code(), absl::StatusCode::kOutOfRange);
}

TEST_P(DeviceConformance, TracedTimesKeepLanesAndEdges) {
  open(/*trace=*/true);
  Graph &graph = ready({.transition = false, .index = 1}), &transition = ready({.transition = true, .index = 0});
  ASSERT_TRUE(device_->launch(transition).ok());
  launch(graph);
  ASSERT_TRUE(device_->drain().ok());
  const plan::Schedule &schedule = plan_.schedules[1];
  const absl::Span<const StepTime> times = device_->lastTimes();
  ASSERT_EQ(times.size(), schedule.steps.size());
  std::array<int64_t, plan::kLanes> laneEnd{};
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_LE(times[i].startNs, times[i].endNs);
    int64_t &end = laneEnd[static_cast<size_t>(schedule.steps[i].lane)];
    EXPECT_GE(times[i].startNs, end) << i;
    end = times[i].endNs;
  }
  for (const plan::Edge &edge : schedule.edges)
    EXPECT_GE(times[edge.to].startNs, times[edge.from].endNs) << edge.from << " -> " << edge.to;
}

// The first copy of this plan's iterations waits for nothing in its own: only the end of the launch before holds it up,
// which computes long after its own copy. On a GPU both are launches of one stream, and clocks are compared to
// microseconds only. A host copy's start may be said to be the end of the copy before it, however late it was looked
// at.
TEST_P(DeviceConformance, NoStepOfALaunchEndsBeforeTheOneBeforeHasItsTokens) {
  if (device_->kind() == "cuda")
    GTEST_SKIP() << "a GPU's clocks are compared to microseconds only";
  plan_ = tinyPlan({.spec = tinyLlama(4), .offloaded = {0}, .kind = GetParam().plansFor});
  open(/*trace=*/true);
  Graph &decode = ready({.transition = false, .index = 0}), &mixed = ready({.transition = false, .index = 1});
  for (uint64_t n = 1; n < 20; n += 2) {
    launch(n % 4 == 1 ? mixed : decode);
    launch(n % 4 == 1 ? decode : mixed);
    ASSERT_TRUE(device_->drain().ok());
    const int64_t visibleNs = device_->tokensVisibleNs(n);
    ASSERT_GT(visibleNs, 0);
    for (const StepTime &time : device_->lastTimes())
      EXPECT_GE(time.endNs, visibleNs) << n;
  }
}

// The copies behind the tokens, which the next iteration needs, belong to the launch too: at 3 MB/s all of its copies
// take 80 ms, the one before the tokens half of it. The next launch's compute does not begin before; sim, which scales
// the times that this plan gives, is off by 3%.
TEST_P(DeviceConformance, NoStepOfALaunchComputesBeforeTheOneBeforeHasMadeItsCopies) {
  if (!GetParam().pacesCopies)
    GTEST_SKIP() << "nothing paces its copies";
  constexpr double kBandwidth = 3e6;
  ASSERT_TRUE(device_->open(plan_, {.linkBandwidth = kBandwidth, .trace = true}).ok());
  Graph &decode = ready({.transition = false, .index = 0}), &mixed = ready({.transition = false, .index = 1});
  uint64_t copied = 0;
  for (const plan::Step &step : plan_.schedules[0].steps)
    copied += step.kind == plan::StepKind::Copy ? step.linkBytes : 0;
  const auto copiesNs = static_cast<int64_t>(static_cast<double>(copied) / kBandwidth * 1e9);
  ASSERT_GT(copiesNs, 50'000'000);
  for (int i = 0; i < 2; ++i) {
    const int64_t launchedNs = device_->nowNs();
    launch(decode);
    launch(mixed);
    ASSERT_TRUE(device_->drain().ok());
    const plan::Schedule &schedule = plan_.schedules[1];
    for (size_t step = 0; step < schedule.steps.size(); ++step)
      if (schedule.steps[step].lane == plan::Lane::Compute) {
        EXPECT_GE(device_->lastTimes()[step].startNs, launchedNs + copiesNs * 19 / 20) << i;
      }
  }
}

// Where the token that a launch reads is the one that the launch before it samples, two in flight are as one by one.
TEST_P(DeviceConformance, TwoLaunchesInFlightGiveTheTokensOfOneByOne) {
  const auto weights = model::syntheticWeights(1);
  const std::vector<int32_t> prompt = {3, 1, 4, 1, 5, 9, 2}, blocks = {1, 2, 3, 4, 5};
  const auto generate = [&](bool oneByOne) {
    std::vector<int32_t> tokens;
    auto runtime = Runtime::load(plan_, *device_, {}, weights.get(), {});
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    const auto read = [&] {
      const auto one = (*runtime)->awaitTokens();
      EXPECT_TRUE(one.ok() && one->size() == 1) << one.status();
      tokens.push_back(one.ok() && !one->empty() ? one->front() : 0);
    };
    for (int i = 0; i < 8; ++i) {
      if (oneByOne && i > 0)
        read();
      const std::vector<int32_t> next = {oneByOne && i > 0 ? tokens.back() : -1};
      const SequenceRows rows{.tokens = i == 0 ? prompt : next,
                              .firstPosition = i == 0 ? 0 : 6 + i,
                              .blocks = blocks,
                              .sample = true,
                              .seed = 1};
      EXPECT_TRUE(writeMeta(plan_.metaLayout, plan_.blockTokens, {&rows, 1}, device_->meta()).ok());
      EXPECT_TRUE((*runtime)->launch(i == 0 ? 1 : 0).ok());
      if (!oneByOne && i > 0)
        read();
    }
    read();
    return tokens;
  };
  const std::vector<int32_t> apart = generate(true);
  EXPECT_EQ(apart.size(), 8u);
  EXPECT_EQ(generate(false), apart);
}

TEST_P(DeviceConformance, WithoutTraceThereAreNoTimes) {
  open();
  Graph &graph = ready({});
  launch(graph);
  ASSERT_TRUE(device_->drain().ok());
  EXPECT_TRUE(device_->lastTimes().empty());
}

TEST_P(DeviceConformance, OpeningAgainStartsFromNothing) {
  const double bandwidth = GetParam().pacesCopies ? 3e6 : 0; // compute waits 40 ms for the first copy
  ASSERT_TRUE(device_->open(plan_, {.linkBandwidth = bandwidth, .trace = true}).ok());
  launch(ready({}));
  ASSERT_TRUE(device_->drain().ok());
  EXPECT_GT(device_->counters().h2dBytes, 0u);
  if (bandwidth > 0) {
    EXPECT_GT(device_->counters().stallNs, 0);
  }
  open(/*trace=*/true);
  EXPECT_EQ(device_->counters().launches, 0u);
  EXPECT_EQ(device_->counters().h2dBytes, 0u);
  EXPECT_EQ(device_->counters().d2hBytes, 0u);
  EXPECT_EQ(device_->counters().stallNs, 0);
  EXPECT_TRUE(device_->lastTimes().empty());
  EXPECT_EQ(device_->awaitTokens(1).status().code(), absl::StatusCode::kFailedPrecondition);
  Graph &graph = ready({});
  launch(graph);
  EXPECT_TRUE(device_->awaitTokens(1).ok());
}

TEST_P(DeviceConformance, TheRuntimeRunsPlansOnIt) {
  const auto weights = model::syntheticWeights(1);
  auto runtime = Runtime::load(plan_, *device_, {}, weights.get(), {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  for (int i = 0; i < 5; ++i) {
    fillMeta(3);
    const auto variant = (*runtime)->choose(3, 3, 1);
    ASSERT_TRUE(variant.ok());
    ASSERT_TRUE((*runtime)->launch(*variant).ok());
    const auto tokens = (*runtime)->awaitTokens();
    ASSERT_TRUE(tokens.ok());
    ASSERT_EQ(tokens->size(), 3u);
    for (int32_t token : *tokens)
      EXPECT_TRUE(token >= 0 && token < 150) << token;
  }
  EXPECT_EQ((*runtime)->transitionsRun(), 1u);
  EXPECT_EQ((*runtime)->missingVariants(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Devices, DeviceConformance, testing::ValuesIn(kDevices),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace headrace::core
