// SPDX-License-Identifier: Apache-2.0
//
// kv_tokens = "auto": the KV cache of what memory is left.
#include "compiler/CompileWithKv.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/PlanFile.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

// 16 GiB of weights, and 64 sequences of 2,048 tokens: 64 x 256 MiB of KV.
CompileRequest asked(uint64_t memory, int64_t batch = 64) {
  CompileRequest r = shipped("llama-3.1-8b", "h100", batch, 2048);
  r.goal.deviceMemory = memory;
  r.goal.autoKvTokens = true;
  return r;
}

plan::Plan compiled(const CompileRequest &request) {
  absl::StatusOr<plan::Plan> plan = compile(request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : plan::Plan();
}

TEST(KvThatFits, AllOfItIsThePlanWithoutAFlag) {
  CompileRequest r = asked(uint64_t{40} << 30);
  const plan::Plan plan = compiled(r);
  EXPECT_EQ(plan.goal.kvTokens, 64 * 2048);
  r.goal.autoKvTokens = false;
  EXPECT_EQ(plan::planHash(plan), plan::planHash(compiled(r)));
}

TEST(KvThatFits, OrWhatTheWeightsLeave) {
  const plan::Plan plan = compiled(asked(uint64_t{24} << 30));
  ASSERT_TRUE(plan.goal.kvTokens.has_value());
  EXPECT_LT(*plan.goal.kvTokens, 64 * 2048);
  EXPECT_EQ(plan::kvBytesByHome(plan, 0).host + plan::weightBytesByHome(plan, 0).host, 0u);
  // A few blocks of 2 MiB at most are left over.
  EXPECT_GE(plan.arenaBytes + (uint64_t{32} << 20), plan.deviceMemory);
  CompileRequest same = asked(uint64_t{24} << 30);
  same.goal.autoKvTokens = false;
  same.goal.kvTokens = plan.goal.kvTokens;
  EXPECT_EQ(plan::planHash(plan), plan::planHash(compiled(same)));
}

uint64_t largestDecodeNs(const plan::Plan &plan) {
  uint64_t ns = 0;
  for (const plan::Variant &variant : plan.variants)
    if (plan.schedules[variant.schedule].iterationClass == plan::IterationClass::Decode)
      ns = std::max(ns, variant.predictedNs);
  return ns;
}

// Where not even a sequence fits beside the weights, they are brought for as many as make the most tokens a second.
TEST(KvThatFits, WhereWeightsLeaveAnyhowAsManyAsDecodeTheMost) {
  constexpr int64_t kBatch = 4;
  const plan::Plan plan = compiled(asked(uint64_t{12} << 30, kBatch));
  ASSERT_TRUE(plan.goal.kvTokens.has_value());
  EXPECT_GT(plan::weightBytesByHome(plan, 0).host, 0u);
  EXPECT_EQ(*plan.goal.kvTokens, kBatch * 2048);
  CompileRequest one = asked(uint64_t{12} << 30, kBatch);
  one.goal.autoKvTokens = false;
  one.goal.kvTokens = 2048;
  EXPECT_LT(largestDecodeNs(plan), kBatch * largestDecodeNs(compiled(one)));
}

TEST(KvThatFits, OfMiniBatchesTheyAreFoundFirst) {
  CompileRequest r = asked(uint64_t{24} << 30, 16);
  r.goal.autoMiniBatches = true;
  const plan::Plan plan = compiled(r);
  EXPECT_EQ(16 % plan.miniBatches, 0u);
  EXPECT_EQ(plan::kvBytesByHome(plan, 0).host, 0u);
}

// What the machine has for both is heeded: here for weights and two sequences.
TEST(KvThatFits, ASharedMemoryBoundsIt) {
  CompileRequest r = asked(uint64_t{40} << 30);
  const uint64_t weights = model::layoutWeights(r.model).totalBytes();
  r.sharedMemory = weights + (uint64_t{2} << 30);
  const plan::Plan plan = compiled(r);
  EXPECT_LE(plan.arenaBytes + plan.hostBytes, *r.sharedMemory);
  ASSERT_TRUE(plan.goal.kvTokens.has_value());
  EXPECT_GE(*plan.goal.kvTokens, 2048);
}

} // namespace
} // namespace headrace::compiler
