// SPDX-License-Identifier: Apache-2.0
//
// HybridServe's lines, lanes, balance and bytes with round numbers.
#include "runtime/cost/HybridServe.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cost/HybridTimes.h"

namespace headrace::cost {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kNone = std::numeric_limits<double>::infinity();

std::string refusedFit(const std::vector<TokenSample> &samples) {
  const auto line = fitLine(samples, "T_kv_gen");
  EXPECT_EQ(line.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(line.status().message());
}

TEST(HybridServeFit, IsTheLeastSquaresLine) {
  const auto exact = fitLine(std::vector<TokenSample>{{0, 100}, {16, 148}, {64, 292}}, "x"); // 100 + 3 tokens
  ASSERT_TRUE(exact.ok()) << exact.status();
  EXPECT_DOUBLE_EQ(exact->interceptNs, 100);
  EXPECT_DOUBLE_EQ(exact->slopeNsPerToken, 3);
  EXPECT_DOUBLE_EQ(exact->r2, 1);
  EXPECT_DOUBLE_EQ(exact->predictNs(1000), 3100);
  // x - 15 = -15 -5 5 15, y - 40 = -30 -12 12 30: slope (450 + 60 + 60 + 450) / 500 = 2.04, intercept 40 - 30.6;
  // residuals 0.6 -1.8 1.8 -0.6 squared are 7.2 of 2088.
  const auto noisy = fitLine(std::vector<TokenSample>{{0, 10}, {10, 28}, {20, 52}, {30, 70}}, "x");
  ASSERT_TRUE(noisy.ok()) << noisy.status();
  EXPECT_NEAR(noisy->slopeNsPerToken, 2.04, 1e-12);
  EXPECT_NEAR(noisy->interceptNs, 9.4, 1e-12);
  EXPECT_NEAR(noisy->r2, 1 - 7.2 / 2088, 1e-12);
}

TEST(HybridServeFit, OfOneTimeIsFlat) {
  const auto flat = fitLine(std::vector<TokenSample>{{1, 0.1}, {2, 0.1}, {4, 0.1}}, "x");
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->slopeNsPerToken, 0);
  EXPECT_EQ(flat->interceptNs, 0.1);
  EXPECT_EQ(flat->r2, 1);
}

TEST(HybridServeFit, RefusesWhatIsNoLine) {
  EXPECT_EQ(refusedFit({{1, 1}, {2, 2}}), "T_kv_gen: 2 samples: expected at least 3");
  EXPECT_THAT(refusedFit({{8, 1}, {8, 2}, {8, 3}}), HasSubstr("all 3 samples have 8 tokens: expected at least two"));
  EXPECT_THAT(refusedFit({{0, 9}, {1, 6}, {2, 3}}), HasSubstr("a slope of -3 ns a token: expected at least 0"));
  // Slope 1.5 about the means (1, 2): residuals -0.5, 1, -0.5 squared are 1.5 of 6.
  EXPECT_THAT(refusedFit({{0, 0}, {1, 3}, {2, 3}}), HasSubstr("R^2 = 0.75 of 3 samples: expected at least 0.98"));
  EXPECT_THAT(refusedFit({{-1, 0}, {1, 3}, {2, 3}}), HasSubstr("a sample of -1 tokens"));
  EXPECT_THAT(refusedFit({{0, -1}, {1, 3}, {2, 3}}), HasSubstr("a sample of -1 ns"));
  EXPECT_THAT(refusedFit({{0, std::nan("")}, {1, 3}, {2, 3}}), HasSubstr("a sample of nan ns"));
  EXPECT_THAT(refusedFit({{0, 1}, {1, kNone}, {2, 3}}), HasSubstr("a sample of inf ns"));
}

// With 0, d, and 0 added to a line of slope 1 through three points, R^2 = 1 - (2/3) d^2 / (2 + (2/3) d^2).
TEST(HybridServeFit, RefusesBelowTheLeastR2) {
  for (double d : {0.24, 0.25}) { // 0.0384 / 2.0384 = 1.88%, 0.041667 / 2.041667 = 2.04%
    const auto line = fitLine(std::vector<TokenSample>{{0, 5}, {1, 6 + d}, {2, 7}}, "x");
    EXPECT_EQ(line.ok(), d < 0.245) << d;
  }
}

TEST(HybridServeLine, TakesNothingForNothing) {
  EXPECT_EQ(lineNs({100, 3}, 0), 0);
  EXPECT_EQ(lineNs({100, 3}, 1), 103);
  EXPECT_EQ(lineNs({-100, 3}, 1), 3); // never below the fit
}

HybridTimes withStarts() {
  HybridTimes t;
  t.loadWeightsNs = 1000;
  t.loadKv = {10, 2};
  t.loadAct = {5, 1};
  t.kvGen = {20, 3};
  t.forward = {100, 0.5};
  t.blockTokens = 4;
  return t;
}

TEST(HybridServeLanes, PrintedLeaveOutWhatCorrectedHave) {
  const HybridBlocks blocks = {25, 10, 5, 2}; // KV host, ACT host, ACT device, KV device, of 4 tokens
  const LaneTimes printed = printedLanes(withStarts(), blocks);
  EXPECT_EQ(printed.pcieNs, 1000 + 10 + 2 * 100);
  EXPECT_EQ(printed.computeNs, 20 + 3 * 60);
  const LaneTimes corrected = correctedLanes(withStarts(), blocks);
  EXPECT_EQ(corrected.pcieNs, 1210 + 5 + 1 * 40);
  EXPECT_EQ(corrected.computeNs, 200 + 100 + 0.5 * 168); // attends all 42 blocks
  EXPECT_EQ(corrected.layerNs(), 1255);
  EXPECT_EQ(corrected.gapNs(), 384 - 1255);
}

TEST(HybridServeLanes, OfNoContextAreWeightsAndTheForwardPass) {
  EXPECT_EQ(correctedLanes(withStarts(), {}).pcieNs, 1000);
  EXPECT_EQ(correctedLanes(withStarts(), {}).computeNs, 100);
  EXPECT_EQ(printedLanes(withStarts(), {}).computeNs, 0);
}

TEST(HybridServeLanes, StartOnceAMiniBatchAndLoadWeightsOnce) {
  const HybridBlocks blocks = {25, 10, 5, 2};
  const LaneTimes four = correctedLanes(overMiniBatches(withStarts(), 4), blocks);
  EXPECT_EQ(four.pcieNs, 1255 + 3 * (10 + 5));
  EXPECT_EQ(four.computeNs, 384 + 3 * (20 + 100));
  const LaneTimes one = correctedLanes(oneMiniBatch(withStarts(), 4), blocks);
  EXPECT_EQ(one.pcieNs, 1255 - 750);
  EXPECT_EQ(one.computeNs, 384);
}

TEST(HybridServeLanes, RefuseTimesThatAreNone) {
  EXPECT_TRUE(checkTimes(withStarts()).ok());
  const auto refused = [](auto change) {
    HybridTimes t = withStarts();
    change(t);
    const absl::Status status = checkTimes(t);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](HybridTimes &t) { t.loadWeightsNs = -1; }), HasSubstr("loadWeightsNs: -1: expected"));
  EXPECT_THAT(refused([](HybridTimes &t) { t.loadKv.slopeNsPerToken = -2; }), HasSubstr("loadKv: a slope of -2"));
  EXPECT_THAT(refused([](HybridTimes &t) { t.loadAct.slopeNsPerToken = kNone; }), HasSubstr("loadAct: a slope of inf"));
  EXPECT_THAT(refused([](HybridTimes &t) { t.kvGen.interceptNs = std::nan(""); }), HasSubstr("kvGen: an intercept"));
  EXPECT_THAT(refused([](HybridTimes &t) { t.forward.slopeNsPerToken = -1; }), HasSubstr("forward: a slope"));
  EXPECT_THAT(refused([](HybridTimes &t) { t.blockTokens = 0; }), HasSubstr("blockTokens: 0: expected 1 to 65536"));
  EXPECT_THAT(refused([](HybridTimes &t) { t.blockTokens = 65537; }), HasSubstr("blockTokens: 65537"));
}

// Step 2 of Algorithm 1 as printed: (4 hidden^2 / 99e12) / (4 hidden / 25e9) = hidden / 3960. With the load of the ACT
// block itself, half a KV block's, KV : ACT is lower by 1/2.
TEST(HybridServeBalance, OfStepTwoGrowsWithTheModelsWidth) {
  const struct {
    double hidden, printed;
  } models[] = {{4096, 1.03}, {5120, 1.29}, {7168, 1.81}, {9216, 2.33}}; // OPT-6.7B, 13B, 30B, 66B
  for (const auto &model : models) {
    const HybridTimes times = optTimes(model.hidden);
    EXPECT_NEAR(printedKvPerAct(times), model.printed, 0.005);
    EXPECT_NEAR(printedKvPerAct(times), model.hidden / 3960, 1e-9);
    EXPECT_NEAR(correctedKvPerAct(times), model.hidden / 3960 - 0.5, 1e-9); // 0.53, 0.79, 1.31, 1.83
  }
}

// Against section 5.2, "larger models take longer to transfer weights, allowing more activation recomputation": a
// layer's weights hide the same number of tokens' K and V in all, (24 h^2 / 25e9) / (4 h^2 / 99e12) = 6 x 3960.
TEST(HybridServeBalance, OfStepOneDoesNotDependOnTheModelsWidth) {
  for (double hidden : {4096, 5120, 7168, 9216}) {
    const HybridTimes times = optTimes(hidden);
    EXPECT_NEAR(times.loadWeightsNs / times.kvGen.slopeNsPerToken, 23760, 1e-6);
  }
}

TEST(HybridServeBalance, OfSlopesHasEnds) {
  HybridTimes t = roundTimes();
  EXPECT_EQ(printedKvPerAct(t), 1);     // 10 / 10
  EXPECT_EQ(correctedKvPerAct(t), 0.5); // (10 - 5) / 10
  t.forward.slopeNsPerToken = 2;
  EXPECT_EQ(correctedKvPerAct(t), 0.875); // (10 + 2 - 5) / (10 - 2)
  t.forward.slopeNsPerToken = 10;
  EXPECT_EQ(correctedKvPerAct(t), kNone); // attending a token takes as long as loading it
  t.loadAct.slopeNsPerToken = 30;
  EXPECT_EQ(correctedKvPerAct(t), 0); // loading an ACT block takes longer than all that is done with it
  t.loadKv.slopeNsPerToken = 0;
  EXPECT_EQ(printedKvPerAct(t), kNone);
}

TEST(HybridServeBalance, PrintedIsInfiniteOrNoNumberWhereAKindIsAbsent) {
  const HybridTimes t = roundTimes();
  EXPECT_EQ(printedBalance(t, {10, 3, 2, 0}), 0.5); // 10 x 5 / (10 x 10)
  EXPECT_EQ(imbalance(0.5), 2);
  EXPECT_EQ(imbalance(2), 2);
  EXPECT_EQ(printedBalance(t, {0, 3, 0, 0}), kNone);
  EXPECT_EQ(printedBalance(t, {3, 0, 0, 0}), 0);
  EXPECT_EQ(imbalance(kNone), kNone);
  EXPECT_EQ(imbalance(0), kNone);
  EXPECT_TRUE(std::isnan(printedBalance(t, {})));
  EXPECT_TRUE(std::isnan(imbalance(printedBalance(t, {}))));
}

TEST(HybridServeBalance, CorrectedIsOfWholeLanes) {
  const HybridTimes half = oneMiniBatch(roundTimes(), 2); // 500 of the weights' 1000
  EXPECT_EQ(correctedBalance(half, {10, 3, 2, 0}), (50 + 90) / (500 + 100 + 15.0));
  EXPECT_EQ(correctedBalance(half, {0, 10, 0, 0}), 190 / 550.0);
  EXPECT_EQ(correctedBalance(half, {10, 0, 0, 0}), 90 / 600.0);
  EXPECT_EQ(correctedBalance(half, {}), 90 / 500.0);
  HybridTimes none = roundTimes();
  none.loadWeightsNs = none.forward.interceptNs = 0;
  EXPECT_EQ(correctedBalance(none, {}), 1);
}

TEST(HybridServeBinding, HasANameEach) {
  EXPECT_EQ(bindingName(Binding::kBalanced), "balanced");
  EXPECT_EQ(bindingName(Binding::kDeviceMemory), "device memory");
  EXPECT_EQ(bindingName(Binding::kWaits), "steps wait");
  EXPECT_EQ(bindingName(Binding::kNothing), "nothing to place");
  EXPECT_TRUE(balanced({100, 95}));
  EXPECT_FALSE(balanced({100, 94}));
  EXPECT_FALSE(balanced({94, 100}));
}

} // namespace
} // namespace headrace::cost
