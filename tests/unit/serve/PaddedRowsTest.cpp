// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/PaddedRows.h"

#include <gtest/gtest.h>

namespace headrace::serve {
namespace {

// Buckets of 8 tokens (decode, 8 sequences: 10 ms), 16 (20 ms), 64 (50 ms) and 256 (200 ms).
plan::Plan plan(model::DeviceKind kind) {
  plan::Plan plan;
  plan.hardware.kind = kind;
  plan.placements.resize(1);
  plan.schedules.resize(2);
  plan.schedules[0].iterationClass = plan::IterationClass::Decode;
  plan.schedules[1].iterationClass = plan::IterationClass::Mixed;
  for (const auto &[tokens, ms] : {std::pair<int64_t, uint64_t>{8, 10}, {16, 20}, {64, 50}, {256, 200}})
    for (const int64_t context : {128, 512}) {
      plan::Variant variant;
      variant.newTokens = tokens;
      variant.sequences = 8;
      variant.context = context;
      variant.schedule = tokens == 8 ? 0 : 1;
      variant.predictedNs = ms * (context == 512 ? 1'000'000 : 900'000);
      plan.variants.push_back(variant);
    }
  return plan;
}

TEST(PaddedRows, AnIterationIsCutWhereTheBucketBelowAndTheRestAreCheaper) {
  const PaddedRows padded(plan(model::DeviceKind::Cuda));
  const auto cut = [&](int64_t tokens) { return padded.cut(0, {tokens, 2, 300}); };
  EXPECT_EQ(cut(65), 64);   // 50 + 10 of 2 rows for 200
  EXPECT_EQ(cut(80), 64);   // 50 + 50 of 17 rows for 200
  EXPECT_EQ(cut(127), 64);  // 50 + 50 of 64 rows
  EXPECT_EQ(cut(128), 128); // 50 + 200 of 65 rows for 200
  EXPECT_EQ(cut(64), 64);   // it fits
  EXPECT_EQ(cut(17), 16);   // 20 + 10 for 50
  EXPECT_EQ(cut(24), 16);   // 20 + 20 for 50
  EXPECT_EQ(cut(34), 34);   // 20 + 50
  EXPECT_EQ(cut(12), 12);   // nothing is below 16 that takes prompts
  EXPECT_EQ(cut(300), 256); // nothing holds all
}

TEST(PaddedRows, WhereRowsAreComputedAsTheyComeNothingIsCut) {
  EXPECT_EQ(PaddedRows(plan(model::DeviceKind::Host)).cut(0, {65, 2, 300}), 65);
}

TEST(PaddedRows, WhatNoBucketHoldsIsNotCut) {
  const PaddedRows padded(plan(model::DeviceKind::Cuda));
  EXPECT_EQ(padded.cut(0, {65, 9, 300}), 65);
  EXPECT_EQ(padded.cut(0, {65, 2, 600}), 65);
}

} // namespace
} // namespace headrace::serve
