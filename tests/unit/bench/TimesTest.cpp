// SPDX-License-Identifier: Apache-2.0
#include "bench/figures/Times.h"

#include <gtest/gtest.h>

namespace headrace::bench {
namespace {

// | 0-10 | 5-20 | 30-40 |: 0-20 and 30-40.
TEST(Intervals, AreUnited) {
  const std::vector<Interval> list = united({{30, 40}, {0, 10}, {5, 20}});
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].end, 20);
  EXPECT_EQ(length(list), 30);
  EXPECT_EQ(length({}), 0);
}

// Kernels 0-20 and 30-40, copies 10-35: 10 + 5 beside each other.
TEST(Intervals, WhatBothCover) {
  const std::vector<Interval> kernels = {{0, 20}, {30, 40}}, copies = {{10, 35}};
  EXPECT_EQ(common(kernels, copies), 15);
  EXPECT_EQ(common(copies, kernels), 15);
  EXPECT_EQ(common(kernels, kernels), 30);
  EXPECT_EQ(common(kernels, {{20, 30}}), 0);
  EXPECT_EQ(common(kernels, {}), 0);
}

// Two layers of 10 and 20 us in four iterations; once the first takes 15.
TEST(Spreads, OfLayersAndOfTheirSum) {
  const Spread spread = spreadOf({{10, 20}, {10, 20}, {15, 20}, {10, 20}});
  EXPECT_DOUBLE_EQ(spread.medianUs, 10); // nearest rank of 10 and 20
  EXPECT_DOUBLE_EQ(spread.slowest, 2);
  EXPECT_DOUBLE_EQ(spread.worst, 1.5);
  EXPECT_DOUBLE_EQ(spread.p99, 1.5); // rank 8 of 8
  EXPECT_DOUBLE_EQ(spread.worstLayerP99, 1.5);
  EXPECT_DOUBLE_EQ(spread.sumWorst, 35.0 / 30);
  EXPECT_DOUBLE_EQ(spreadOf({}).worst, 0);
}

} // namespace
} // namespace headrace::bench
