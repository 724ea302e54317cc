// SPDX-License-Identifier: Apache-2.0
//
// The largest chunk of prompts where the placement is stated. Four layers of 123 KB are brought by each iteration, in
// 49 ms at 10 MB/s; 2,048 rows compute for some 6 ms. 64 prompts of 128 tokens are 8,192 rows.
#include <algorithm>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CompileRequest prompted() {
  CompileRequest r = request(tinyLlama(4));
  r.goal.batch = 64;
  r.goal.context = 144;
  r.goal.inputLen = 128;
  r.goal.outputLen = 2;
  r.policy.interval = 1;
  r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = r.hardware.duplexBandwidth = 1e7;
  return r;
}

plan::Plan planOf(const CompileRequest &r) {
  absl::StatusOr<plan::Plan> plan = compile(r);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : plan::Plan();
}

int64_t largestOf(const plan::Plan &plan) {
  int64_t tokens = 0;
  for (const plan::Variant &variant : plan.variants)
    tokens = std::max(tokens, variant.newTokens);
  return tokens;
}

TEST(LargestChunk, HoldsAllPromptsWhereEachIterationBringsTheWeights) {
  const plan::Plan plan = planOf(prompted());
  EXPECT_EQ(largestOf(plan), 8192);
  EXPECT_THAT(plan.reason, HasSubstr("Prompts: up to 8192 tokens an iteration; with each of those tried a batch of 64 "
                                     "requests of 128 + 2 tokens, up to 8192 of prompts at a time: 2048 "));
}

TEST(LargestChunk, IsTheUsualOneWhereComputeIsTheLonger) {
  CompileRequest r = prompted();
  r.hardware = request(tinyLlama(4)).hardware; // 1 GB/s: 0.5 ms
  const plan::Plan plan = planOf(r);
  EXPECT_EQ(largestOf(plan), 2048);
  EXPECT_THAT(plan.reason, Not(HasSubstr("Prompts: up to")));
}

TEST(LargestChunk, IsTheUsualOneWhereNobodySaysWhatIsPrompted) {
  CompileRequest r = prompted();
  r.goal.inputLen.reset();
  r.goal.outputLen.reset();
  EXPECT_EQ(largestOf(planOf(r)), 2048);
  r.goal.inputLen = 128;
  r.policy = {};
  r.policy.name = "deepspeed"; // has its own
  EXPECT_EQ(largestOf(planOf(r)), 2048);
}

TEST(LargestChunk, StaysWhereBucketsAreStated) {
  CompileRequest r = prompted();
  r.buckets.newTokens = {16, 128};
  EXPECT_EQ(largestOf(planOf(r)), 128);
}

// 32 sequences of each.
TEST(LargestChunk, IsOfOneMiniBatch) {
  CompileRequest r = prompted();
  r.goal.miniBatches = 2;
  EXPECT_EQ(largestOf(planOf(r)), 4096);
}

TEST(LargestChunk, IsWhatMemoryHolds) {
  CompileRequest r = prompted();
  r.goal.kvDeviceMemory = 0;
  r.policy.offloadEmbedding = r.policy.offloadHead = model::AutoOnOff::Off;
  r.policy.slots = 2;
  const plan::Plan all = planOf(r);
  ASSERT_EQ(largestOf(all), 8192);
  r.goal.deviceMemory = all.arenaBytes - 1;
  const plan::Plan less = planOf(r);
  EXPECT_EQ(largestOf(less), 4096);
  EXPECT_LE(less.arenaBytes, *r.goal.deviceMemory);
}

// It is what --new-tokens would have stated, to the byte.
TEST(LargestChunk, IsAsIfItWereStated) {
  CompileRequest r = prompted();
  plan::Plan sought = planOf(r);
  r.buckets.newTokens = {16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
  plan::Plan stated = planOf(r);
  sought.reason = stated.reason = "";
  EXPECT_EQ(plan::serialize(sought), plan::serialize(stated));
}

} // namespace
} // namespace headrace::compiler
