// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/ScaledPrice.h"

#include <cmath>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "kernels/Kernels.h"
#include "runtime/cost/Record.h"
#include "tests/unit/cost/Models.h"

namespace headrace::cost {
namespace {

using kernels::Op;
using model::DType;
using model::UnitRole;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr OpSite kQkv{Op::Linear, UnitRole::Qkv};

Roofline roofline(double launchSeconds) {
  model::Hardware h = oneAPerSecond();
  h.launchOverhead = launchSeconds;
  return Roofline(smallLlama(), h, DType::F32, DType::F16);
}

// Of the bucket 2 x 64 x 32 x 8 rows = 32768 flops, so seconds (bytes are fewer); of 4 rows half of that.
constexpr Bucket kEight{8, 8, 16};
constexpr Rows kFour{.tokens = 4, .sampled = 4, .contexts = 64, .pairs = 64};

TEST(ScaledPrice, TheRooflinesPriceBecomesTheRooflineOfWhatRuns) {
  const Roofline costs = roofline(100);
  EXPECT_EQ(ScaledPrice(costs, kQkv, How::OnDevice, kEight, 32868 * kSecond).ns(kFour), 16484 * kSecond);
}

TEST(ScaledPrice, AMeasuredPriceKeepsTheLaunchAndScalesTheRest) {
  const Roofline costs = roofline(100);
  EXPECT_EQ(ScaledPrice(costs, kQkv, How::OnDevice, kEight, 1100 * kSecond).ns(kFour), 600 * kSecond);
  EXPECT_EQ(ScaledPrice(costs, kQkv, How::OnDevice, kEight, 100'100 * kSecond).ns(kFour), 50'100 * kSecond);
}

TEST(ScaledPrice, APriceOfNoMoreThanTheLaunchStays) {
  const Roofline costs = roofline(100);
  EXPECT_EQ(ScaledPrice(costs, kQkv, How::OnDevice, kEight, 100 * kSecond).ns(kFour), 100 * kSecond);
  EXPECT_EQ(ScaledPrice(costs, kQkv, How::OnDevice, kEight, 7).ns(kFour), 7u);
}

TEST(ScaledPrice, WhatNeverEndsOrHasNothingToDoStays) {
  model::Hardware none = oneAPerSecond();
  none.flopsF32 = 0;
  const Roofline noRate(smallLlama(), none, DType::F32, DType::F16);
  EXPECT_EQ(ScaledPrice(noRate, kQkv, How::OnDevice, kEight, 40).ns(kFour), 40u);
  EXPECT_EQ(ScaledPrice(roofline(0), kQkv, How::OnDevice, {0, 0, 0}, 40).ns(kFour), 40u);
}

TEST(ScaledPrice, WhereNothingRunsTheLaunchIsLeft) {
  const Roofline costs = roofline(100);
  EXPECT_EQ(ScaledPrice(costs, kQkv, How::OnDevice, kEight, 1100 * kSecond).ns({}), 100 * kSecond);
}

// A prompt of 8 rows: 4608 flops; half of what is above the overhead where 4 of them run that see half of the pairs.
TEST(ScaledPrice, AttentionKeepsItsOwnOverhead) {
  model::Hardware h = oneAPerSecond();
  h.launchOverhead = 10;
  h.classes.attentionOverhead = 100;
  const Roofline costs(smallLlama(), h, DType::F32, DType::F16);
  const OpSite attention{Op::Attention, UnitRole::Qkv};
  const Rows half{.tokens = 4, .sampled = 1, .contexts = 8, .pairs = 18};
  EXPECT_EQ(ScaledPrice(costs, attention, How::OnDevice, {8, 1, 8}, 4708 * kSecond).ns(half), 2404 * kSecond);
  EXPECT_EQ(ScaledPrice(costs, attention, How::OnDevice, {8, 1, 8}, 1100 * kSecond).ns(half), 600 * kSecond);
  EXPECT_EQ(ScaledPrice(costs, attention, How::OnDevice, {8, 1, 8}, 90 * kSecond).ns(half), 90 * kSecond);
}

double between(double low, double high) { return low + (high - low) * (*rc::gen::inRange(0, 1001)) / 1000.0; }

RC_GTEST_PROP(ScaledPrice, IsTheRooflineOfWhatRunsOrTheFormula, ()) {
  model::Hardware h = oneAPerSecond();
  h.flopsF32 = between(1e9, 1e12);
  h.memoryBandwidth = between(1e9, 1e11);
  h.h2dBandwidth = h.d2hBandwidth = between(1e8, 1e10);
  h.launchOverhead = between(0, 5e-6);
  if (*rc::gen::arbitrary<bool>())
    for (const model::ClassKey &key : model::classKeys())
      h.classes.*key.field = key.time ? between(0, 5e-6) : between(0.1, 1);
  const Roofline costs(smallLlama(), h, DType::F32, DType::F16);
  const auto bucketUpTo = [](const Bucket &most) {
    const auto upTo = [](int64_t limit) { return *rc::gen::inRange<int64_t>(1, limit + 1); };
    const int64_t sequences = upTo(most.sequences), context = upTo(most.context);
    return Bucket{std::min(most.tokens, sequences * context), sequences, context};
  };
  const Bucket bucket = bucketUpTo({512, 64, 300});
  const Rows runs = rowsOf(bucketUpTo(bucket));
  const OpSite site = opSiteOf(static_cast<Site>(*rc::gen::inRange(0, kSites)));
  const bool direct = *rc::gen::arbitrary<bool>();

  const uint64_t rooflineNs = costs.computeNs(site, bucket, direct);
  const double launch =
      site.op == Op::Attention && h.classes.attentionOverhead > 0 ? h.classes.attentionOverhead : h.launchOverhead;
  const double launchNs = launch * 1e9, seconds = costs.seconds(site, runs, direct);
  RC_ASSERT(ScaledPrice(costs, site, direct ? How::Direct : How::OnDevice, bucket, rooflineNs).ns(runs) ==
            wholeNs((seconds + launch) * 1e9));
  const uint64_t priced = rooflineNs * *rc::gen::inRange<uint64_t>(1, 40) / 10;
  const double share = seconds / costs.seconds(site, rowsOf(bucket), direct);
  const double expected =
      std::max(static_cast<double>(priced) - launchNs, 0.0) * share + std::min(static_cast<double>(priced), launchNs);
  RC_ASSERT(std::abs(static_cast<double>(
                         ScaledPrice(costs, site, direct ? How::Direct : How::OnDevice, bucket, priced).ns(runs)) -
                     expected) <= 1.01);
}

} // namespace
} // namespace headrace::cost
