// SPDX-License-Identifier: Apache-2.0
//
// Algorithm 1 of HybridServe, printed and corrected, with round numbers and against exhaustive search; Eq. 11.
#include "runtime/cost/HybridAllocation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/cost/HybridSplit.h"
#include "tests/unit/cost/HybridTimes.h"

namespace headrace::cost {
namespace {

using testing::HasSubstr;

// 1290 bytes, 100 of them weights'; a KV block of 2 bytes, an ACT block of 1.
constexpr HostCapacity kHost = {1290, 100, {2, 1}};

TEST(HybridAllocationPrinted, FillsTheLoadOfWeightsFirst) {
  const HybridTimes times = roundTimes();
  // 20 ACT blocks on the device: a budget of 1000 - 200, 80 ACT blocks. 1190 - 80 = 1110 = a + 2 k with 10 a = 10 k.
  const auto got = allocatePrinted(times, 20, kHost);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->actInit, 80);
  EXPECT_EQ(got->kvInit, 0);
  EXPECT_EQ(got->actRemain, 370);
  EXPECT_EQ(got->kvRemain, 370);
  EXPECT_EQ(got->actHost, 450);
  EXPECT_EQ(got->kvHost, 370);
  // Balanced by its own count, and not by the one that has the load of 450 ACT blocks and the forward pass.
  const LaneTimes printed = printedLanes(times, {370, 450, 20, 0}), real = correctedLanes(times, {370, 450, 20, 0});
  EXPECT_EQ(printed.pcieNs, 4700); // 1000 + 10 x 370
  EXPECT_EQ(printed.computeNs, 4700);
  EXPECT_EQ(real.pcieNs, 4700 + 5 * 450);
  EXPECT_EQ(real.computeNs, 4700 + 90);
}

TEST(HybridAllocationPrinted, LoadsKvFirstWhereTheDevicesAreLonger) {
  HybridTimes times = roundTimes();
  times.loadWeightsNs = 100; // a budget of 100 - 200: 10 KV blocks; 1190 - 20 = 1170 = 3 x 390
  const auto got = allocatePrinted(times, 20, kHost);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->kvInit, 10);
  EXPECT_EQ(got->actHost, 390);
  EXPECT_EQ(got->kvHost, 400);
}

TEST(HybridAllocationPrinted, CountsInterceptsOnceALine) {
  HybridTimes times = roundTimes();
  times.kvGen.interceptNs = 100; // line 13: 1000 - (100 + 200) = 700; line 15: (700 - 100) / 10
  times.loadKv.interceptNs = 40; // line 26: 100 + 10 a = 40 + 10 k, k = a + 6; 1190 - 60 = 3 a + 12
  const auto got = allocatePrinted(times, 20, kHost);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->actInit, 60);
  EXPECT_NEAR(got->actRemain, 1118 / 3.0, 1e-9);
  EXPECT_NEAR(got->kvRemain, 1118 / 3.0 + 6, 1e-9);
}

TEST(HybridAllocationPrinted, TakesMoreThanThereIsAndGivesNegativeBlocks) {
  HybridTimes times = roundTimes();
  times.loadWeightsNs = 20000; // 2000 ACT blocks of 1190 bytes; 1190 - 2000 = -810 = 3 x -270
  const auto got = allocatePrinted(times, 0, kHost);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->actHost, 1730);
  EXPECT_EQ(got->kvHost, -270);
}

HybridAllocation allocated(const HybridTimes &times, int64_t actDevice, const HostCapacity &host) {
  const auto got = allocateHybrid(times, actDevice, host);
  EXPECT_TRUE(got.ok()) << got.status();
  return got.value_or(HybridAllocation());
}

TEST(HybridAllocationCorrected, BalancesWholeLanes) {
  // 10 (a + 20) + 90 = 1000 + 10 k + 5 a with a + 2 k = 1190: a = 142 + 2 k, k = 262.
  const HybridAllocation got = allocated(roundTimes(), 20, kHost);
  EXPECT_EQ(got.actHost, 666);
  EXPECT_EQ(got.kvHost, 262);
  EXPECT_EQ(got.lanes.pcieNs, 6950); // 1000 + 2620 + 3330
  EXPECT_EQ(got.lanes.computeNs, 6950);
  EXPECT_EQ(got.binding, Binding::kBalanced);
}

// A line through measured times may begin below 0; none of its times does.
TEST(HybridAllocationCorrected, CountsNoInterceptBelowNothing) {
  for (Line HybridTimes::*line : {&HybridTimes::loadKv, &HybridTimes::loadAct, &HybridTimes::kvGen}) {
    HybridTimes times = roundTimes();
    (times.*line).interceptNs = -6000;
    const HybridAllocation got = allocated(times, 20, kHost);
    EXPECT_EQ(got.actHost, 666); // as with 0
    EXPECT_EQ(got.kvHost, 262);
    EXPECT_EQ(got.lanes.pcieNs, 6950);
    EXPECT_EQ(got.lanes.computeNs, 6950);
  }
}

TEST(HybridAllocationCorrected, NamesWhatBinds) {
  HybridTimes times = roundTimes();
  times.loadWeightsNs = 20000; // 10 x 1190 + 90 against 20000 + 5 x 1190: more ACT blocks would do
  HybridAllocation got = allocated(times, 0, kHost);
  EXPECT_EQ(got.actHost, 1190);
  EXPECT_EQ(got.kvHost, 0);
  EXPECT_EQ(got.binding, Binding::kHostMemory);

  times.kvGen.slopeNsPerToken = 4; // no number of ACT blocks: each takes 5 of the link
  got = allocated(times, 0, kHost);
  EXPECT_EQ(got.actHost, 1190);
  EXPECT_EQ(got.binding, Binding::kAllAct);

  times = roundTimes();
  times.forward.interceptNs = 90000; // more KV blocks than 595 would do
  got = allocated(times, 20, kHost);
  EXPECT_EQ(got.actHost, 0);
  EXPECT_EQ(got.kvHost, 595);
  EXPECT_EQ(got.binding, Binding::kHostMemory);
  times.forward.slopeNsPerToken = 12; // none would: attending a block takes longer than loading it
  EXPECT_EQ(allocated(times, 20, kHost).binding, Binding::kAllKv);

  times = roundTimes();
  times.loadAct.slopeNsPerToken = 10; // an ACT block saves the link nothing
  got = allocated(times, 20, kHost);
  EXPECT_EQ(got.actHost, 0);
  EXPECT_EQ(got.kvHost, 595);
  EXPECT_EQ(got.binding, Binding::kActLoadsMore);

  // 4 bytes: with 4, 2, 0 ACT blocks compute takes 120, 60, 0 and the link 20.
  times = roundTimes();
  times.loadWeightsNs = times.forward.interceptNs = 0;
  times.kvGen.slopeNsPerToken = 30;
  got = allocated(times, 0, {4, 0, {2, 1}});
  EXPECT_EQ(got.actHost, 0);
  EXPECT_EQ(got.kvHost, 2);
  EXPECT_EQ(got.binding, Binding::kBlocksTooCoarse);

  EXPECT_EQ(allocated(roundTimes(), 20, {100, 100, {2, 1}}).binding, Binding::kNothing);
}

// 882 GB of host memory less a model's weights, blocks of 16 tokens of all layers, none on the device. The paper names
// KV : ACT = 1:1, -, 2:1, 1.78:1; it falls from 30B to 66B, where any of these grow with the width.
TEST(HybridAllocationCorrected, OfThePapersMachine) {
  const struct {
    int64_t hidden, layers;
    double printed, corrected;
  } models[] = {{4096, 32, 1.01, 0.52}, {5120, 40, 1.24, 0.76}, {7168, 48, 1.66, 1.19}, {9216, 64, 1.91, 1.48}};
  for (const auto &model : models) {
    const BlockBytes block{16 * 2 * model.hidden * 2, 16 * model.hidden * 2};
    const HostCapacity host = {int64_t{882'000'000'000},
                               24 * model.hidden * model.hidden * model.layers,
                               {block.kv * model.layers, block.act * model.layers}};
    const HybridTimes times = optTimes(static_cast<double>(model.hidden));
    const auto printed = allocatePrinted(times, 0, host);
    ASSERT_TRUE(printed.ok()) << printed.status();
    EXPECT_NEAR(static_cast<double>(printed->kvHost) / static_cast<double>(printed->actHost), model.printed, 0.006);
    const HybridAllocation corrected = allocated(times, 0, host);
    EXPECT_NEAR(static_cast<double>(corrected.kvHost) / static_cast<double>(corrected.actHost), model.corrected, 0.006);
    EXPECT_EQ(corrected.binding, Binding::kBalanced);
    // What is printed leaves the device idle while its ACT blocks are loaded, each half a KV block's load beside K and
    // V in hidden / 3960 of it: 0.5 / (0.5 + hidden / 3960) of a layer, 33%, 28%, 22%, 18%.
    const LaneTimes real = correctedLanes(times, {printed->kvHost, printed->actHost, 0, 0});
    const double idle = 0.5 / (0.5 + static_cast<double>(model.hidden) / 3960);
    EXPECT_NEAR(-real.gapNs() / real.layerNs(), idle, 0.001);
  }
}

// Eq. 8 over every split that fills the memory, and the layer's time over every split of as many blocks.
void expectBestOf(const HybridTimes &times, int64_t actDevice, const HostCapacity &host) {
  const HybridAllocation got = allocated(times, actDevice, host);
  const int64_t room = host.bytes - host.weightBytes, used = got.actHost * host.block.act + got.kvHost * host.block.kv;
  ASSERT_LE(used, room);
  ASSERT_GE(std::min(got.actHost, got.kvHost), 0);
  const bool actLoadsLess = times.loadAct.slopeNsPerToken < times.loadKv.slopeNsPerToken;
  ASSERT_LT(room - used, actLoadsLess ? std::max(host.block.kv, host.block.act) : host.block.kv);
  const LaneTimes lanes = correctedLanes(times, {got.kvHost, got.actHost, actDevice, 0});
  EXPECT_EQ(lanes.layerNs(), got.lanes.layerNs());
  double least = std::numeric_limits<double>::infinity(); // of |T_pcie - T_compute|
  bool anyShort = false, anyLong = false;
  const auto consider = [&](int64_t kv, int64_t act) {
    const double gap = correctedLanes(times, {kv, act, actDevice, 0}).gapNs();
    least = std::min(least, std::abs(gap));
    anyShort |= gap < 0;
    anyLong |= gap > 0;
  };
  consider(room / host.block.kv, 0);
  for (int64_t act = 0; act <= room / host.block.act && actLoadsLess; ++act) {
    const int64_t kv = (room - act * host.block.act) / host.block.kv;
    if (room - act * host.block.act - kv * host.block.kv < host.block.act) // full
      consider(kv, act);
  }
  if (actLoadsLess)
    consider(0, room / host.block.act);
  if (anyShort && anyLong) {
    EXPECT_LE(std::abs(lanes.gapNs()), least * (1 + 1e-12));
  } else {
    EXPECT_EQ(anyShort && actLoadsLess ? got.kvHost : got.actHost, 0);
  }
  const int64_t total = got.actHost + got.kvHost;
  double fastest = got.lanes.layerNs();
  for (int64_t act = 0; act <= total; ++act) {
    if (act * host.block.act + (total - act) * host.block.kv <= room)
      fastest = std::min(fastest, correctedLanes(times, {total - act, act, actDevice, 0}).layerNs());
  }
  EXPECT_LE(got.lanes.layerNs(), 1.02 * fastest);
  switch (got.binding) { // what is not balanced is at an end, or between two blocks
  case Binding::kBalanced:
    EXPECT_LE(std::abs(lanes.gapNs()), 0.05 * lanes.layerNs());
    break;
  case Binding::kAllKv:
    EXPECT_TRUE(lanes.gapNs() > 0 && got.actHost == 0);
    break;
  case Binding::kAllAct:
    EXPECT_TRUE(lanes.gapNs() < 0 && got.kvHost == 0);
    break;
  case Binding::kHostMemory:
    EXPECT_TRUE(got.kvHost == 0 ? lanes.gapNs() < 0 : got.actHost == 0 && lanes.gapNs() > 0);
    break;
  case Binding::kActLoadsMore:
    EXPECT_TRUE(lanes.gapNs() < 0 && got.actHost == 0 && !actLoadsLess);
    break;
  case Binding::kBlocksTooCoarse:
    EXPECT_TRUE(anyShort && anyLong);
    break;
  default:
    ADD_FAILURE() << bindingName(got.binding);
  }
}

TEST(HybridAllocationCorrected, IsTheBestOfAllSplits) {
  Random random(7);
  int balancedOnes = 0, coarse = 0;
  for (int i = 0; i < 200; ++i) {
    SCOPED_TRACE(i);
    const BlockBytes block = {random.in(1, 8), random.in(1, 8)};
    const HostCapacity host = {random.in(2000, 9000) + 500, 500, block};
    const bool proportional = i % 2 == 0;
    const HybridTimes times = random.times(block, proportional);
    const int64_t actDevice = random.in(0, 200);
    expectBestOf(times, actDevice, host);
    const HybridAllocation got = allocated(times, actDevice, host);
    coarse += got.binding == Binding::kBlocksTooCoarse ? 1 : 0;
    if (got.binding != Binding::kBalanced)
      continue;
    ++balancedOnes;
    // KV blocks on the device take no more of a layer away than ACT blocks of as many bytes where loads go by bytes.
    if (proportional && block.act < block.kv && got.actHost > 0 && got.kvHost > 0) {
      const auto split = bestSplit(times, got.actHost + got.kvHost + actDevice,
                                   {host.bytes - host.weightBytes, actDevice * block.act, block});
      ASSERT_TRUE(split.ok()) << split.status();
      EXPECT_LE(got.lanes.layerNs(), 1.02 * split->lanes.layerNs());
    }
  }
  EXPECT_GE(balancedOnes, 40);
  EXPECT_EQ(coarse, 0); // a block is at most 1 in 250
}

TEST(HybridAllocation, RefusesWhatIsNoMemory) {
  const auto refused = [](const HybridTimes &times, int64_t actDevice, const HostCapacity &host) {
    const auto got = allocateHybrid(times, actDevice, host);
    EXPECT_EQ(got.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(allocatePrinted(times, actDevice, host).status(), got.status());
    return std::string(got.status().message());
  };
  EXPECT_THAT(refused(roundTimes(), -1, kHost), HasSubstr("ACT blocks on the device: -1: expected 0 to"));
  EXPECT_THAT(refused(roundTimes(), 0, {99, 100, {2, 1}}),
              HasSubstr("host memory of 99 bytes: expected at least the 100 of the weights"));
  EXPECT_THAT(refused(roundTimes(), 0, {99, -1, {2, 1}}), HasSubstr("-1 of the weights"));
  EXPECT_THAT(refused(roundTimes(), 0, {99, 0, {0, 1}}), HasSubstr("a KV block of 0 bytes"));
  EXPECT_THAT(refused(roundTimes(), 0, {99, 0, {1, 0}}), HasSubstr("an ACT block of 0: expected at least 1"));
  EXPECT_THAT(refused(roundTimes(), 0, {int64_t{1} << 45, 0, {2, 1}}), HasSubstr("for 35184372088832 blocks"));
  HybridTimes times = roundTimes();
  times.blockTokens = 0;
  EXPECT_THAT(refused(times, 0, kHost), HasSubstr("blockTokens"));
  times = roundTimes();
  times.kvGen.slopeNsPerToken = 0;
  EXPECT_THAT(allocatePrinted(times, 0, kHost).status().message(), HasSubstr("kvGen: a slope of 0 ns a block"));
  EXPECT_TRUE(allocateHybrid(times, 0, kHost).ok());
}

} // namespace
} // namespace headrace::cost
