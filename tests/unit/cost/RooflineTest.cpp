// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/Kernels.h"
#include "runtime/cost/CostModel.h"
#include "tests/unit/cost/Models.h"

namespace headrace::cost {
namespace {

using kernels::Op;
using model::DType;
using model::UnitRole;

constexpr uint64_t kSecond = 1'000'000'000;

uint64_t qkvNs(const model::Hardware &hardware, Bucket bucket, bool direct = false, DType activation = DType::F32) {
  return Roofline(smallLlama(), hardware, activation, DType::F16)
      .computeNs({Op::Linear, UnitRole::Qkv}, bucket, direct);
}

// qkv of smallLlama at one row: 4096 flops, 4096 + 128 + 256 = 4480 bytes; at 8 rows 32768 flops, 7168 bytes.

TEST(Roofline, TakesTheLongerOfFlopsAndBytes) {
  EXPECT_EQ(qkvNs(oneAPerSecond(), {1, 1, 1}), 4480 * kSecond);
  EXPECT_EQ(qkvNs(oneAPerSecond(), {8, 8, 1}), 32768 * kSecond);
}

TEST(Roofline, EfficienciesAreSharesOfThePeak) {
  model::Hardware h = oneAPerSecond();
  h.memoryEfficiency = 0.5;
  EXPECT_EQ(qkvNs(h, {1, 1, 1}), 8960 * kSecond);
  h.flopsEfficiency = 0.25;
  EXPECT_EQ(qkvNs(h, {8, 8, 1}), 131072 * kSecond);
}

TEST(Roofline, EveryComputeStepPaysTheLaunch) {
  model::Hardware h = oneAPerSecond();
  h.launchOverhead = 3;
  EXPECT_EQ(qkvNs(h, {1, 1, 1}), 4483 * kSecond);
}

TEST(Roofline, ThePeakFollowsTheTypeOfTheActivations) {
  model::Hardware h = oneAPerSecond();
  h.flopsF16 = 4;
  EXPECT_EQ(qkvNs(h, {8, 8, 1}), 32768 * kSecond);
  // F16 activations: 32768 / 4 = 8192 flops' worth against 4096 + 8 x 96 x 2 = 5632 bytes.
  EXPECT_EQ(qkvNs(h, {8, 8, 1}, false, DType::F16), 8192 * kSecond);
}

TEST(Roofline, DirectStepsAreBoundByTheLink) {
  model::Hardware h = oneAPerSecond();
  h.flopsF32 = h.memoryBandwidth = 1000;
  h.linkEfficiency = 0.5;
  EXPECT_EQ(qkvNs(h, {1, 1, 1}, true), 8192 * kSecond); // 4096 bytes at half a byte a second
}

TEST(Roofline, ADirectAppendIsBoundByTheLinkTowardsTheHost) {
  model::Hardware h = oneAPerSecond();
  h.flopsF32 = h.memoryBandwidth = h.h2dBandwidth = 1e6;
  h.d2hBandwidth = 8;
  h.linkEfficiency = 0.5;
  h.launchOverhead = 3;
  const OpSite append{Op::RopeAppend, UnitRole::Qkv};
  const Roofline costs(smallLlama(), h, DType::F32, DType::F16);
  // 25 x 2 x 16 rows x 2 bytes = 1600, at 4 bytes a second.
  EXPECT_EQ(costs.computeNs(append, {25, 25, 1}, true), 403 * kSecond);
  EXPECT_EQ(costs.directNs(append, {25, 25, 1}), 403 * kSecond);
  EXPECT_LT(costs.computeNs(append, {25, 25, 1}, false), 4 * kSecond);
  // Where the device is slower than the link, the stores are hidden: T = 25 are 25 x 512 bytes.
  h.memoryBandwidth = 8;
  h.d2hBandwidth = 1e6;
  EXPECT_EQ(Roofline(smallLlama(), h, DType::F32, DType::F16).computeNs(append, {25, 25, 1}, true), 1603 * kSecond);
}

TEST(Roofline, ACopyIsLatencyAndBytes) {
  model::Hardware h = oneAPerSecond();
  h.h2dBandwidth = 10;
  h.d2hBandwidth = 5;
  h.copyLatency = 2;
  const Roofline costs(smallLlama(), h, DType::F32, DType::F16);
  EXPECT_EQ(costs.copyNs(100, true), 12 * kSecond);
  EXPECT_EQ(costs.copyNs(100, false), 22 * kSecond);
  EXPECT_EQ(costs.copyNs(0, true), 2 * kSecond);
}

TEST(Roofline, DuplexShareIsOfTheFasterDirection) {
  model::Hardware h = oneAPerSecond();
  h.h2dBandwidth = 10;
  h.d2hBandwidth = 8;
  h.duplexBandwidth = 15;
  EXPECT_DOUBLE_EQ(Roofline(smallLlama(), h, DType::F32, DType::F16).duplexShare(), 1.5);
}

TEST(Roofline, RoundsToTheNearestNanosecond) {
  model::Hardware h = oneAPerSecond();
  h.h2dBandwidth = 3e9;
  const Roofline costs(smallLlama(), h, DType::F32, DType::F16);
  EXPECT_EQ(costs.copyNs(4, true), 1u); // 1.33 ns
  EXPECT_EQ(costs.copyNs(5, true), 2u); // 1.67 ns
}

TEST(Roofline, NoStepIsLongerThanTheLongest) {
  model::Hardware h = oneAPerSecond();
  h.h2dBandwidth = 0;
  const Roofline costs(smallLlama(), h, DType::F32, DType::F16);
  EXPECT_EQ(costs.copyNs(~uint64_t{0}, false), kLongestStepNs);
  EXPECT_EQ(costs.copyNs(1, true), kLongestStepNs);
  EXPECT_EQ(costs.copyNs(0, true), 0u);
}

} // namespace
} // namespace headrace::cost
