// SPDX-License-Identifier: Apache-2.0
#include "bench/figures/Bound.h"

#include <gtest/gtest.h>

namespace headrace::bench {
namespace {

constexpr Peaks kPeaks{.bytesPerSecond = 4e12, .flopsPerSecond = 1e15};

// 8 MB by 4 TB/s are 2 us; 1 GFLOP by 1 PFLOP/s is 1 us.
TEST(Bounds, AreByWhatTakesLonger) {
  EXPECT_DOUBLE_EQ(boundUs({.bytes = 8e6, .flops = 1e9}, kPeaks), 2);
  EXPECT_DOUBLE_EQ(boundUs({.bytes = 8e6, .flops = 3e9}, kPeaks), 3);
}

TEST(Bounds, StandBesideWhatWasMeasured) {
  const Json memory = besideBound(5, {.bytes = 8e6, .flops = 1e9}, kPeaks);
  EXPECT_EQ(memory["bound by"], "memory");
  EXPECT_DOUBLE_EQ(memory["bound us"], 2);
  EXPECT_DOUBLE_EQ(memory["share"], 0.4);
  EXPECT_DOUBLE_EQ(memory["GB/s"], 1600); // 8 MB in 5 us
  const Json arithmetic = besideBound(6, {.bytes = 8e6, .flops = 3e9}, kPeaks);
  EXPECT_EQ(arithmetic["bound by"], "arithmetic");
  EXPECT_DOUBLE_EQ(arithmetic["share"], 0.5);
  EXPECT_DOUBLE_EQ(arithmetic["TFLOP/s"], 500); // 3 GFLOP in 6 us
}

} // namespace
} // namespace headrace::bench
