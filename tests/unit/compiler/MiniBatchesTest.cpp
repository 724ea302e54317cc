// SPDX-License-Identifier: Apache-2.0
//
// Layers that are passed for several mini-batches: what is brought once and what once for each, what memory is counted,
// what is refused.
//
// tinyLlama: hidden 64; a KV block of 16 tokens takes 4 KiB a layer and mini-batch.
#include <algorithm>
#include <map>
#include <vector>

#include "compiler/choice/Resolve.h"
#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/CacheMap.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using plan::IterationClass;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kLayers = 4;
constexpr uint64_t kLayerBlock = 4096;

// Each mini-batch has two sequences of context 64, 9 blocks with the scratch block.
CompileRequest asked(int64_t miniBatches) {
  CompileRequest r = request(tinyLlama(kLayers));
  r.goal.miniBatches = miniBatches;
  r.goal.batch = 2 * miniBatches;
  r.buckets = {.newTokens = {2, 16}, .sequences = {2}, .contexts = {64}};
  return r;
}

plan::Plan compiled(const CompileRequest &r) {
  auto plan = compile(r);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : plan::Plan();
}

std::vector<const plan::Schedule *> iterations(const plan::Plan &plan) {
  std::vector<const plan::Schedule *> out;
  for (const plan::Schedule &schedule : plan.schedules)
    if (schedule.iterationClass != IterationClass::Transition)
      out.push_back(&schedule);
  return out;
}

// Bytes that copies to the device move, by buffer.
std::map<uint32_t, uint64_t> brought(const plan::Schedule &schedule) {
  std::map<uint32_t, uint64_t> bytes;
  for (const plan::Step &step : schedule.steps)
    if (step.kind == plan::StepKind::Copy && step.lane == plan::Lane::H2D)
      bytes[schedule.operands[step.firstOperand].buffer] += step.linkBytes;
  return bytes;
}

TEST(MiniBatches, EachLayersWeightsAreCopiedOnceWhateverTheirNumber) {
  for (const int64_t m : {1, 2, 3, 8}) {
    CompileRequest r = asked(m);
    r.policy.interval = 1;
    const plan::Plan plan = compiled(r);
    ASSERT_EQ(plan.miniBatches, static_cast<uint32_t>(m));
    ASSERT_EQ(plan::offloadedWeights(plan, plan.placements[0]).layers, kLayers);
    const model::WeightLayout layout = model::layoutWeights(r.model);
    for (const plan::Schedule *schedule : iterations(plan)) {
      uint64_t layers = 0;
      for (const auto &[buffer, bytes] : brought(*schedule))
        if (plan.buffers[buffer].layer >= 0) {
          EXPECT_EQ(bytes, plan.buffers[buffer].bytes) << schedule->name << " " << plan.buffers[buffer].name;
          layers += bytes;
        }
      EXPECT_EQ(layers, kLayers * layout.layerBytes(0)) << schedule->name;
    }
    // So the link alone takes no longer for more of them, and compute does.
    for (const plan::Variant &variant : plan.variants)
      EXPECT_EQ(variant.linkAloneNs, (kLayers * layout.layerBytes(0)) / 1) << m; // 1 byte a ns
  }
}

TEST(MiniBatches, ALayerIsPassedForEachInTurnBeforeTheNext) {
  const plan::Plan plan = compiled(asked(3));
  for (const plan::Schedule *schedule : iterations(plan)) {
    std::vector<std::pair<int32_t, uint8_t>> passes; // layer, mini-batch
    for (const plan::Step &step : schedule->steps)
      if (step.kind == plan::StepKind::Compute &&
          (passes.empty() || passes.back() != std::pair(step.layer, step.miniBatch)))
        passes.emplace_back(step.layer, step.miniBatch);
    std::vector<std::pair<int32_t, uint8_t>> expected;
    for (const int32_t layer : {-1, 0, 1, 2, 3, -1}) // embed, the layers, head
      for (const uint8_t miniBatch : {0, 1, 2})
        expected.emplace_back(layer, miniBatch);
    EXPECT_EQ(passes, expected) << schedule->name;
    EXPECT_EQ(std::count_if(schedule->steps.begin(), schedule->steps.end(),
                            [](const plan::Step &step) { return step.kind == plan::StepKind::Publish; }),
              1);
  }
}

// Of 9 blocks 2 are on the device: a tail is 7 x 4 KiB = 28 KiB. Tails of all layers and mini-batches take turns in two
// slots of that size; one copy each, and one home where they are written back.
TEST(MiniBatches, SlotsHoldOneMiniBatchsTailAndEachHasACopyOfItsOwn) {
  for (const model::KvWriteBack writeBack : {model::KvWriteBack::Mirror, model::KvWriteBack::All}) {
    CompileRequest r = asked(3);
    r.policy.none = true;
    r.policy.kvWriteBack = writeBack;
    r.goal.kvDeviceMemory = (2 * 3 * kLayers + 2 * 7) * kLayerBlock;
    const plan::Plan plan = compiled(r);
    ASSERT_EQ(plan::CacheMap(plan, plan.placements[0]).resident(), 2);
    ASSERT_EQ(plan.kvBlocks, 9);
    for (const plan::Slot &slot : plan.placements[0].slots)
      EXPECT_EQ(slot.bytes, 7 * kLayerBlock);
    EXPECT_GE(plan.placements[0].slots.size(), 2u);
    EXPECT_LE(plan.placements[0].slots.size(), 4u);
    EXPECT_EQ(plan.hostBytes, 3 * kLayers * 7 * kLayerBlock);
    for (const plan::Schedule *schedule : iterations(plan)) {
      if (schedule->kvBlocks > 0) // it brings none
        continue;
      std::map<std::pair<int32_t, uint32_t>, int> there, home; // copies, by layer and mini-batch
      for (const plan::Step &step : schedule->steps)
        if (step.kind == plan::StepKind::Copy) {
          const plan::Buffer &cache = plan.buffers[schedule->operands[step.firstOperand].buffer];
          EXPECT_EQ(step.miniBatch, cache.index);
          EXPECT_TRUE(step.resizable);
          ++(step.lane == plan::Lane::H2D ? there : home)[{cache.layer, cache.index}];
        }
      EXPECT_EQ(there.size(), 3u * kLayers) << schedule->name;
      EXPECT_EQ(home.size(), writeBack == model::KvWriteBack::All ? 3u * kLayers : 0u) << schedule->name;
      for (const auto &copies : {there, home})
        for (const auto &[cache, count] : copies)
          EXPECT_EQ(count, 1);
    }
  }
}

TEST(MiniBatches, BucketsAndBlocksAreOfTheLargest) {
  CompileRequest r = request(tinyLlama(2));
  r.goal.batch = 12;
  r.goal.miniBatches = 4;
  auto target = resolve(r);
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(target->batch, 3);
  EXPECT_EQ(target->sequences(), 12);
  EXPECT_EQ(target->meta.maxSequences, 3);
  EXPECT_EQ(target->kvBlocks, 13); // 3 x 64 / 16 and the scratch block
  std::vector<int64_t> sequences;
  for (const cost::Bucket &bucket : target->decode)
    sequences.push_back(bucket.sequences);
  EXPECT_THAT(sequences, ElementsAre(1, 2, 3));
  EXPECT_EQ(target->mixed.back().tokens, 3 * 64);
  // Tokens of KV are shared out: 500 are 125 for each, 8 blocks.
  r.goal.kvTokens = 500;
  EXPECT_EQ(resolve(r)->kvBlocks, 9);
  const plan::Plan plan = compiled(r);
  EXPECT_EQ(plan.goal.batch, 12);
  EXPECT_EQ(plan.mostSampled(), 12);
  std::vector<int64_t> variants;
  for (const plan::Variant &variant : plan.variants)
    variants.push_back(variant.sequences);
  EXPECT_THAT(variants, Each(::testing::Le(3)));
}

// The residual stream of each, 16 rows x 64 x 4 bytes = 4 KiB, lives as long as the iteration; what a pass of a layer
// makes beside it is one mini-batch's at a time.
TEST(MiniBatches, ResidualsOfAllAreCounted) {
  uint64_t before = 0, one = 0;
  for (const int64_t m : {1, 2, 3, 4}) {
    const plan::Plan plan = compiled(asked(m));
    uint64_t activations = 0;
    for (uint32_t i = 0; i < plan.schedules.size(); ++i)
      if (plan.schedules[i].iterationClass == IterationClass::Mixed)
        activations = plan::deviceBytes(plan, i).activations;
    if (m == 1)
      one = activations;
    else
      EXPECT_EQ(activations, before + 16 * 64 * 4) << m;
    before = activations;
  }
  EXPECT_GT(one, 16u * 64 * 4);
}

TEST(MiniBatches, WhatDoesNotFitNamesTheirResidualsAndTheLeastThatWould) {
  CompileRequest r = asked(4);
  r.goal.deviceMemory = 4096;
  const auto refused = compile(r);
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  const std::string message(refused.status().message());
  EXPECT_THAT(message, HasSubstr("residuals of 4 mini-batches 16.00 KiB"));
  EXPECT_THAT(message, HasSubstr("at batch 8 and context 64"));
  EXPECT_THAT(message, HasSubstr("fewer mini-batches"));
  const std::string least = "the minimum is ";
  const uint64_t minimum = std::stoull(message.substr(message.find(least) + least.size()));
  r.goal.deviceMemory = minimum;
  EXPECT_TRUE(compile(r).ok());
  r.goal.deviceMemory = minimum - 1;
  EXPECT_FALSE(compile(r).ok());
  // Of one mini-batch nobody is told.
  CompileRequest single = asked(1);
  single.goal.deviceMemory = 4096;
  EXPECT_THAT(std::string(compile(single).status().message()), ::testing::Not(HasSubstr("mini-batches")));
}

std::string refusal(const CompileRequest &r) {
  const auto target = resolve(r);
  EXPECT_EQ(target.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(target.status().message());
}

TEST(MiniBatches, WhatCannotBeIsRefused) {
  CompileRequest r = request(tinyLlama(2));
  r.goal.batch = 128;
  for (const int64_t count : {int64_t{0}, int64_t{-1}, int64_t{65}}) {
    r.goal.miniBatches = count;
    EXPECT_EQ(refusal(r), "goal.mini_batches = " + std::to_string(count) + ": expected 1 to 64");
  }
  r.goal.miniBatches = 3;
  EXPECT_EQ(refusal(r), "goal.mini_batches = 3: expected a divisor of the batch of 128");
  r.goal.batch = 2;
  r.goal.miniBatches = 4;
  EXPECT_EQ(refusal(r), "goal.mini_batches = 4: expected a divisor of the batch of 2");
  r.goal.miniBatches = 2;
  r.goal.kvTokens = 64; // one sequence of context 64
  EXPECT_EQ(refusal(r),
            "goal.kv_tokens = 64: expected at least 2 sequences of context 64, one for each of 2 mini-batches");
}

} // namespace
} // namespace headrace::compiler
