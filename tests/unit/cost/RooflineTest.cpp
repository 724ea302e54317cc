// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <gmock/gmock.h>
#include <limits>

#include <gtest/gtest.h>

#include <vector>

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

// qkv of smallLlama in q4:32: [64, 32], 64 groups of 20 bytes, 1280. For 9 rows a CUDA device reads them and writes
// 64 x 32 x 2 = 4096 bytes of F16, which the product reads with x, 9 x 32 x 2, and y, 9 x 64 x 2: 5376 + 5824 bytes, in
// two launches. The host reads 1280 + 1728. So does a CUDA device for 8 rows, 1280 + 1536, where unpacking 2048
// weights, each as long as 10 flops, takes less.
TEST(Roofline, CudaDevicesUnpackInMemoryOrOnTheWay) {
  model::ModelSpec spec = smallLlama();
  spec.encodings[UnitRole::Qkv] = model::Encoding::groups(4, 32);
  model::Hardware h = oneAPerSecond();
  h.flopsF16 = 1000, h.flopsF32 = 1000, h.launchOverhead = 3;
  const auto ns = [&](model::DeviceKind kind, int64_t rows) {
    h.kind = kind;
    return Roofline(spec, h, DType::F16, DType::F16).computeNs({Op::Linear, UnitRole::Qkv}, {rows, rows, 1}, false);
  };
  EXPECT_EQ(ns(model::DeviceKind::Cuda, 9), (5376 + 5824 + 2 * 3) * kSecond);
  EXPECT_EQ(ns(model::DeviceKind::Host, 9), (1280 + 1728 + 3) * kSecond);
  EXPECT_EQ(ns(model::DeviceKind::Cuda, 8), (1280 + 1536 + 3) * kSecond);
  h.flopsF32 = 2; // 10240 s
  EXPECT_EQ(ns(model::DeviceKind::Cuda, 8), (10240 + 3) * kSecond);
}

// Products of smallLlama as above; attention of 8 rows of one sequence of 8: 36 pairs, 4 x 32 x 36 = 4608 flops, and
// 8 x 2 x 16 x 2 + 2 x 8 x 32 x 4 = 2560 bytes; a norm of one row 32 x (4 + 4) + 4 x 32 = 384 bytes.
constexpr OpSite kAttention{Op::Attention, UnitRole::Qkv}, kNorm{Op::Norm, UnitRole::Qkv};
constexpr Bucket kPrompt{8, 1, 8};

uint64_t ns(const model::Hardware &hardware, const OpSite &site, const Bucket &bucket) {
  return Roofline(smallLlama(), hardware, DType::F32, DType::F16).computeNs(site, bucket, false);
}

TEST(RooflineClasses, EachHasItsOwnEfficienciesAndOthersStay) {
  model::Hardware h = oneAPerSecond();
  const auto all = [&] {
    return std::vector<uint64_t>{qkvNs(h, {1, 1, 1}) / kSecond, qkvNs(h, {8, 8, 1}) / kSecond,
                                 ns(h, kAttention, kPrompt) / kSecond, ns(h, kAttention, {1, 1, 100}) / kSecond,
                                 ns(h, kNorm, {1, 1, 1}) / kSecond};
  };
  // One row at 100 tokens: 4 x 32 x 100 = 12800 flops, 100 x 64 + 256 = 6656 bytes.
  EXPECT_THAT(all(), testing::ElementsAre(4480, 32768, 4608, 12800, 384));
  h.classes.productMemoryEfficiency = 0.5;
  EXPECT_THAT(all(), testing::ElementsAre(8960, 32768, 4608, 12800, 384));
  h.classes.productFlopsEfficiency = 0.25;
  EXPECT_THAT(all(), testing::ElementsAre(16384, 131072, 4608, 12800, 384)); // of one row 4096 flops
  h.classes.prefillAttentionFlopsEfficiency = 0.5;
  EXPECT_THAT(all(), testing::ElementsAre(16384, 131072, 9216, 25600, 384));
  h.classes.decodeAttentionMemoryEfficiency = 0.1;
  EXPECT_THAT(all(), testing::ElementsAre(16384, 131072, 25600, 66560, 384));
  h.classes.rowMemoryEfficiency = 0.125;
  EXPECT_THAT(all(), testing::ElementsAre(16384, 131072, 25600, 66560, 3072));
}

// Of q4's 64 x 64 qkv of one row 2 x 4096 flops are of the product and as many of unpacking, at half the rate.
TEST(RooflineClasses, UnpackingHasAnEfficiencyOfItsOwn) {
  model::Hardware h = oneAPerSecond();
  h.kind = model::DeviceKind::Host;
  model::ModelSpec spec = smallLlama();
  spec.encodings[UnitRole::Qkv] = model::Encoding::groups(4, 32);
  const OpSite qkv{Op::Linear, UnitRole::Qkv};
  const auto seconds = [&](int64_t rows) {
    return static_cast<double>(Roofline(spec, h, DType::F32, DType::F16).computeNs(qkv, {rows, rows, 1}, false)) / 1e9;
  };
  const double values = static_cast<double>(spec.qkvRows() * spec.hidden);
  EXPECT_EQ(seconds(1), 4 * values); // two of each kind a value
  EXPECT_EQ(seconds(8), 18 * values);
  h.classes.unpackFlopsEfficiency = 0.5;
  EXPECT_EQ(seconds(1), 6 * values);
  EXPECT_EQ(seconds(8), 20 * values); // whatever the rows: once a pass
  EXPECT_EQ(Roofline(spec, h, DType::F32, DType::F16).unpackSeconds(qkv, {.tokens = 8}), 4 * values);
  h.classes.productFlopsEfficiency = 0.25;
  EXPECT_EQ(seconds(1), 12 * values);
  EXPECT_EQ(Roofline(smallLlama(), h, DType::F32, DType::F16).computeNs(qkv, {8, 8, 1}, false) / 1'000'000'000,
            64 * spec.qkvRows() * spec.hidden);
}

// A row that attends to 5 tokens: 5 x 2 x 16 keys and values, two flops each; as many of a second row of its sequence.
TEST(RooflineClasses, ReadingKeysAndValuesHasAnEfficiencyOfItsOwn) {
  model::Hardware h = oneAPerSecond();
  h.kind = model::DeviceKind::Host;
  const OpSite attention{Op::Attention, UnitRole::Qkv};
  const auto seconds = [&](int64_t rows) {
    return Roofline(smallLlama(), h, DType::F32, DType::F16).computeNs(attention, {rows, 1, 5}, false) / kSecond;
  };
  const uint64_t one = seconds(1), two = seconds(2);
  const auto kept = static_cast<uint64_t>(5 * 2 * smallLlama().kvRows());
  h.classes.readKvFlopsEfficiency = 0.5;
  EXPECT_EQ(seconds(1), one + 4 * kept);
  EXPECT_EQ(seconds(2), two + 4 * kept);
}

// 8 rows made anew: 8 x (2 x 32 x 32 + 3 x 16) = 16768 flops.
TEST(RooflineClasses, KeysAndValuesMadeAnewAreAProduct) {
  model::Hardware h = oneAPerSecond();
  const OpSite rebuild{Op::RebuildKv, UnitRole::Qkv};
  EXPECT_EQ(ns(h, rebuild, {.actRows = 8}), 16768 * kSecond);
  h.classes.rowMemoryEfficiency = 0.001;
  h.classes.productFlopsEfficiency = 0.5;
  EXPECT_EQ(ns(h, rebuild, {.actRows = 8}), 33536 * kSecond);
}

TEST(RooflineClasses, AttentionHasAnOverheadOfItsOwn) {
  model::Hardware h = oneAPerSecond();
  h.launchOverhead = 3;
  EXPECT_EQ(ns(h, kAttention, kPrompt), 4611 * kSecond);
  h.classes.attentionOverhead = 92;
  EXPECT_EQ(ns(h, kAttention, kPrompt), 4700 * kSecond);
  EXPECT_EQ(ns(h, kNorm, {1, 1, 1}), 387 * kSecond);
  EXPECT_EQ(qkvNs(h, {1, 1, 1}), 4483 * kSecond);
}

// t = 4608: with a ramp of as much twice as long, of a quarter 1.5 times. Rows that decode have none.
TEST(RooflineClasses, PromptsRampUp) {
  model::Hardware h = oneAPerSecond();
  h.classes.prefillAttentionRamp = 4608;
  EXPECT_EQ(ns(h, kAttention, kPrompt), 9216 * kSecond);
  h.classes.prefillAttentionRamp = 1152;
  EXPECT_EQ(ns(h, kAttention, kPrompt), 6912 * kSecond);
  EXPECT_EQ(ns(h, kAttention, {1, 1, 100}), 12800 * kSecond);
  EXPECT_EQ(ns(h, kAttention, {8, 8, 1}), 2560 * kSecond); // eight prompts of one token: as if they decoded
  EXPECT_EQ(qkvNs(h, {8, 8, 1}), 32768 * kSecond);
}

// 16-bit heads of 64, 80, 96 and 128 have tensor cores; 112, 192, 256 and all F32 do not, and compute by flops_f32.
TEST(RooflineClasses, HeadsWithoutTensorCoresAreSlow) {
  model::Hardware h = oneAPerSecond();
  h.flopsF16 = 100;
  h.memoryBandwidth = 1e9;
  h.classes.prefillAttentionFlopsEfficiency = 0.5;
  h.classes.prefillAttentionRamp = 1e-9; // of tensor cores
  h.classes.plainAttentionFlopsEfficiency = 0.25;
  const auto seconds = [&](int64_t headDim, DType activation, DType kv) {
    model::ModelSpec spec = smallLlama();
    spec.headDim = headDim;
    return Roofline(spec, h, activation, kv).computeNs(kAttention, {1, 1, 100}, false) / kSecond;
  };
  // 4 x 2 heads x 100 = 800 flops an element.
  for (const int64_t dim : {64, 80, 96, 128})
    EXPECT_EQ(seconds(dim, DType::F16, DType::F16), static_cast<uint64_t>(800 * dim / 50)) << dim;
  for (const int64_t dim : {16, 112, 192, 256})
    EXPECT_EQ(seconds(dim, DType::F16, DType::F16), static_cast<uint64_t>(800 * dim * 4)) << dim;
  EXPECT_EQ(seconds(64, DType::F32, DType::F32), 800u * 64 * 4);
  EXPECT_EQ(seconds(64, DType::F16, DType::F32), 800u * 64 * 4);
  EXPECT_EQ(seconds(64, DType::BF16, DType::F16), 800u * 64 * 4);
  h.classes.plainAttentionFlopsEfficiency = 0; // not said: as the others
  EXPECT_EQ(seconds(256, DType::F16, DType::F16), 800u * 256 / 50);
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

// Four sequences of 25 tokens: 100 x 64 bytes of F16 and 2 x 4 x 32 x 4 of q and the result are 7,424; 4 x 32 x 100 =
// 12,800 FLOP.
TEST(Roofline, OnTheCpuItIsTheCpusBandwidthOrItsArithmetic) {
  model::Hardware h = oneAPerSecond();
  const OpSite attention{Op::Attention, UnitRole::Qkv};
  const Bucket bucket{4, 4, 25};
  const auto seconds = [&] {
    const Roofline costs(smallLlama(), h, DType::F32, DType::F16);
    EXPECT_NEAR(costs.seconds(attention, rowsOf(bucket), How::OnCpu) * 1e9 + kHostNodeSeconds * 1e9,
                static_cast<double>(costs.cpuNs(attention, bucket)), 1);
    return static_cast<double>(costs.cpuNs(attention, bucket)) * 1e-9 - kHostNodeSeconds;
  };
  h.cpu = {.cores = 4, .flops = 6400, .memoryBandwidth = 1000, .coreBandwidth = 232};
  EXPECT_NEAR(seconds(), 8, 1e-6); // 7,424 / (4 x 232); 12,800 / 6,400 is 2
  h.cpu.memoryBandwidth = 464;
  EXPECT_NEAR(seconds(), 16, 1e-6);
  h.cpu.flops = 640;
  EXPECT_NEAR(seconds(), 20, 1e-6);
  h.kind = model::DeviceKind::Host; // the CPU is the device
  const Roofline host(smallLlama(), h, DType::F32, DType::F16);
  EXPECT_EQ(host.cpuNs(attention, bucket), host.computeNs(attention, bucket, false));
}

TEST(Roofline, HostMemoryIsAskedForByTheLinkAndTheCpu) {
  model::Hardware h = oneAPerSecond();
  h.h2dBandwidth = 10;
  h.d2hBandwidth = 8;
  h.duplexBandwidth = 15;
  h.linkEfficiency = 0.5;
  EXPECT_EQ(sharingOf(h).hostMemory, std::numeric_limits<double>::infinity()); // nothing is known of it
  h.cpu = {.cores = 4, .flops = 1, .memoryBandwidth = 30, .coreBandwidth = 6};
  const Sharing sharing = Roofline(smallLlama(), h, DType::F32, DType::F16).sharing();
  EXPECT_DOUBLE_EQ(sharing.duplexShare, 1.5);
  EXPECT_DOUBLE_EQ(sharing.hostMemory, 30);
  EXPECT_EQ(sharing.asked, (std::array<double, 3>{5, 4, 24}));
  EXPECT_EQ(sharingOf(h, 7).asked, (std::array<double, 3>{7, 7, 24}));
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
