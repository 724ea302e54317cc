// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/generators/HybridShare.h"
#include "compiler/choice/Resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"

namespace headrace::compiler {
namespace {

using testing::HasSubstr;

// tinyOpt: hidden 64, as many key heads as heads, F32; a link of 1 GB/s, a byte a ns. Both of all layers away.
CompileRequest away(int64_t layers, int64_t miniBatches) {
  CompileRequest r = request(tinyOpt(layers));
  r.policy.name = "hybridserve";
  r.goal.batch = 4 * miniBatches;
  r.goal.context = 256;
  r.goal.miniBatches = miniBatches;
  r.goal.kvDeviceMemory = 0;
  r.goal.deviceMemory = uint64_t{32} << 20;
  r.hardware.flopsF32 = 1e12; // so that rebuilding is worth it
  r.hardware.memoryBandwidth = 100e9;
  return r;
}

// A token's keys and values are 2 x 64 x 4 bytes, its activations 64 x 4. Rebuilding it: 4 x 64 x 64 flops, and in
// device memory 3 x 64 x 4 bytes of activations, 4 x 64 x 4 before and 2 x 64 x 4 after they are in blocks, 2304 in
// all, 23.04 ns at 100 GB/s; both products' weights, 2 x 64 x 64 x 4 bytes, and biases, 2 x 64 x 4: 332.8 ns once.
TEST(HybridShare, TimesAreLinesThroughTheCostModelsPrices) {
  const CompileRequest r = away(3, 2);
  const HybridRoom room{.loadWeightsNs = 30'000, .weightBytes = 30'000, .deviceBytes = 0};
  const absl::StatusOr<HybridShare> share = hybridShare(r, askedChoice(r), room);
  ASSERT_TRUE(share.ok()) << share.status();
  EXPECT_EQ(share->times.loadWeightsNs, 10'000); // of one of three layers
  EXPECT_NEAR(share->times.loadKv.slopeNsPerToken, 512, 1e-6);
  EXPECT_NEAR(share->times.loadAct.slopeNsPerToken, 256, 1e-6);
  EXPECT_NEAR(share->times.loadKv.interceptNs, 0, 1e-3);
  EXPECT_NEAR(share->times.kvGen.slopeNsPerToken, 23.04, 0.01);
  EXPECT_NEAR(share->times.kvGen.interceptNs, 2 * 332.8, 2); // once a mini-batch, each to whole ns
  // What attends reads 512 bytes a token.
  EXPECT_NEAR(share->times.forward.slopeNsPerToken, 5.12, 0.01);
  EXPECT_GT(share->times.forward.interceptNs, 0);
  EXPECT_EQ(share->blocks, 8 * 256 / 16);
  EXPECT_EQ(share->blocksPerSequence, 16);
  EXPECT_EQ(share->block.kv, 16 * 512);
  EXPECT_EQ(share->block.act, 16 * 256);
  EXPECT_EQ(share->actDevice, 0);
}

TEST(HybridShare, CopiesThatDisturbComputeAreCounted) {
  struct Disturbed final : cost::CostModel {
    explicit Disturbed(const CompileRequest &r) : roofline(r.model, r.hardware, model::DType::F32, model::DType::F32) {}
    uint64_t computeNs(const cost::OpSite &site, const cost::Bucket &bucket, bool direct) const override {
      return roofline.computeNs(site, bucket, direct);
    }
    uint64_t copyNs(uint64_t bytes, bool toDevice) const override { return roofline.copyNs(bytes, toDevice); }
    cost::Interference interference() const override { return {.computeFactor = 2}; }
    cost::Roofline roofline;
  };
  CompileRequest r = away(3, 1);
  const absl::StatusOr<HybridShare> alone = hybridShare(r, askedChoice(r), {});
  const Disturbed costs(r);
  r.costs = &costs;
  const absl::StatusOr<HybridShare> beside = hybridShare(r, askedChoice(r), {});
  ASSERT_TRUE(alone.ok() && beside.ok());
  EXPECT_NEAR(beside->times.kvGen.slopeNsPerToken, 2 * alone->times.kvGen.slopeNsPerToken, 1e-6);
  EXPECT_EQ(beside->times.loadKv.slopeNsPerToken, alone->times.loadKv.slopeNsPerToken);
}

TEST(HybridShare, PricesThatAreNoLinesHaveNoAnswer) {
  CompileRequest r = away(3, 1);
  r.goal.context = 1; // every sample is of one block a sequence
  EXPECT_THAT(hybridShare(r, askedChoice(r), {}).status().message(),
              HasSubstr("copies of KV: all 8 samples have 64 tokens"));
}

// The device has room for 40 ACT blocks of three layers, which are taken first; text and part say what was found.
TEST(HybridShare, FillsTheDeviceFirstAndSaysBothForms) {
  const CompileRequest r = away(3, 2);
  const int64_t blocks = 40;
  const absl::StatusOr<HybridShare> share = hybridShare(
      r, askedChoice(r), {.loadWeightsNs = 30'000, .weightBytes = 30'000, .deviceBytes = blocks * 3 * 16 * 256});
  ASSERT_TRUE(share.ok()) << share.status();
  EXPECT_EQ(share->actDevice, blocks);
  EXPECT_EQ(share->batch.blocks.actDevice, blocks);
  EXPECT_EQ(share->batch.blocks.kvDevice, 0); // which kv_device_memory = 0 forbids
  EXPECT_EQ(share->partOf(64), (128 * share->batch.blocks.act() + 128) / 256);
  ASSERT_TRUE(share->printed && share->corrected);
  EXPECT_GT(share->printed->kvHost, 0);
  const std::string text = explainHybridShare(*share);
  EXPECT_THAT(text, HasSubstr(absl::StrCat("as printed ", share->printed->actHost, " ACT and ")));
  EXPECT_THAT(text, HasSubstr(absl::StrCat(", corrected ", share->corrected->actHost, " ACT and ")));
  EXPECT_THAT(text, HasSubstr(std::string(cost::bindingName(share->corrected->binding))));
  EXPECT_THAT(text, HasSubstr(absl::StrCat("over this batch, corrected: ", share->batch.blocks.act(), " ACT and ")));
  EXPECT_THAT(text, HasSubstr(", 40 of ACT and 0 of KV on the device"));
}

uint64_t largestDecodeNs(const plan::Plan &plan) {
  uint64_t ns = 0;
  for (const plan::Variant &variant : plan.variants)
    if (const plan::Schedule &schedule = plan.schedules[variant.schedule];
        schedule.iterationClass == plan::IterationClass::Decode && schedule.kvBlocks == 0)
      ns = variant.predictedNs;
  return ns;
}

// `auto` is as fast as the fastest of all 65 shares stated, whatever compute takes beside the link.
TEST(HybridShare, AutoIsAsFastAsTheFastestStated) {
  for (const double flops : {2e9, 1e11}) {
    SCOPED_TRACE(flops);
    CompileRequest r = away(3, 2);
    r.hardware.flopsF32 = flops;
    r.goal.context = 512;
    r.buckets = {.newTokens = {16}, .sequences = {4}, .contexts = {512}};
    r.policy.actRatio = model::kAutoActRatio;
    const absl::StatusOr<plan::Plan> chosen = compile(r);
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_THAT(chosen->reason, HasSubstr("Algorithm 1 over the host's memory: as printed "));
    uint64_t least = UINT64_MAX;
    for (int64_t part = 0; part <= kActParts; ++part) {
      r.policy.actRatio = model::actRatioOf(part, kActParts - part);
      const absl::StatusOr<plan::Plan> plan = compile(r);
      ASSERT_TRUE(plan.ok()) << plan.status();
      least = std::min(least, largestDecodeNs(*plan));
    }
    EXPECT_EQ(largestDecodeNs(*chosen), least);
  }
}

// What is shown is the chosen share's alone, and the plan is the same whether anybody looks.
TEST(HybridShare, OnlyTheChosenShareIsShown) {
  CompileRequest r = away(2, 1);
  r.policy.actRatio = model::kAutoActRatio;
  const absl::StatusOr<plan::Plan> unseen = compile(r);
  ASSERT_TRUE(unseen.ok()) << unseen.status();
  const auto shown = [](CompileRequest asked) {
    std::vector<std::string> texts;
    asked.onPhase = [&](std::string_view, std::string_view, std::string_view text) { texts.emplace_back(text); };
    const absl::StatusOr<plan::Plan> plan = compile(asked);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return std::pair(texts, plan->reason);
  };
  const auto [texts, reason] = shown(r);
  EXPECT_EQ(reason, unseen->reason);
  r.policy.actRatio = unseen->actRatio;
  EXPECT_EQ(shown(r).first, texts);
}

} // namespace
} // namespace headrace::compiler
