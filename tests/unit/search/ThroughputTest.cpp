// SPDX-License-Identifier: Apache-2.0
//
// --prefer throughput: the batch is found, and the plan is the one of that batch.
#include <optional>

#include "absl/strings/str_cat.h"
#include "compiler/CompileThroughput.h"
#include "compiler/search/Search.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/plan/PlanFile.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

CompileRequest most(const std::string &model, const std::string &hardware, int64_t batch, int64_t context) {
  CompileRequest r = shipped(model, hardware, batch, context);
  r.policy.name = "joint";
  r.policy.prefer = model::Prefer::Throughput;
  r.policy.actRatio = model::ActRatio();
  return r;
}

// Of a batch, by its search alone.
double rateAt(CompileRequest r, int64_t batch) {
  r.goal.batch = batch;
  r.policy.prefer = model::Prefer::Latency;
  const cost::Roofline costs(r.model, r.hardware, r.model->dtype, r.model->dtype);
  Space space(r, costs);
  const std::optional<Searched> searched = search(space, searchedGenerators(space));
  if (!searched || searched->best.late > 0)
    return 0;
  return static_cast<double>(batch * (r.goal.outputLen ? *r.goal.outputLen : 1)) / searched->best.aimNs;
}

// The plan of the batch that was found, whose rate is none of the others'.
void expectBest(const CompileRequest &r, const plan::Plan &plan) {
  const double found = rateAt(r, *plan.goal.batch);
  for (int64_t batch = 1; batch <= *r.goal.batch; batch *= 2)
    EXPECT_LE(rateAt(r, batch), found * 1.001) << batch;
  CompileRequest same = r;
  same.goal.batch = plan.goal.batch;
  same.policy.prefer = model::Prefer::Latency;
  const absl::StatusOr<plan::Plan> stated = compile(same);
  ASSERT_TRUE(stated.ok()) << stated.status();
  EXPECT_EQ(plan::planHash(*stated), plan::planHash(plan));
}

// A sequence of 8,192 tokens takes 1 GiB, and beside 15 GiB of weights there is room for seven: what more of them bring
// takes the link for longer than they compute.
TEST(Throughput, ASmallerBatchMakesMoreWhereCachesWaitForTheLink) {
  CompileRequest r = most("llama-3.1-8b", "rtx4090", 64, 8192);
  r.goal.deviceMemory = 24'000'000'000;
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GE(*plan->goal.batch, 7);
  EXPECT_LT(*plan->goal.batch, 32);
  EXPECT_THAT(plan->reason, ContainsRegex("A batch of [0-9]+ makes the most tokens a second of those up to 64 that "
                                          "were tried \\(64 [0-9.]+, 32 [0-9.]+, 16 [0-9.]+, "));
  expectBest(r, *plan);
}

TEST(Throughput, TheLargestDoesWhereWeightsAreReadOnceForAll) {
  for (const bool lengths : {false, true}) {
    CompileRequest r = most("opt-6.7b", "a10", 32, 256);
    if (lengths) {
      r.goal.inputLen = 128;
      r.goal.outputLen = 64;
    }
    const absl::StatusOr<plan::Plan> plan = compile(r);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->goal.batch, 32) << plan->reason;
    expectBest(r, *plan);
  }
}

// 57 ms an iteration of 128 sequences, some 33 of one.
TEST(Throughput, AnObjectiveBoundsTheBatch) {
  CompileRequest r = most("opt-6.7b", "a10", 128, 72);
  r.goal.tpot = std::chrono::milliseconds(45);
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LT(*plan->goal.batch, 128);
  EXPECT_GT(*plan->goal.batch, 16);
  for (const plan::Variant &variant : plan->variants)
    if (plan->schedules[variant.schedule].iterationClass == plan::IterationClass::Decode) {
      EXPECT_LE(variant.predictedNs, 45'000'000u);
    }
  EXPECT_THAT(plan->reason, HasSubstr("(128 none, "));
}

TEST(Throughput, MiniBatchesDivideIt) {
  CompileRequest r = most("opt-6.7b", "a10", 24, 256);
  r.goal.miniBatches = 3;
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(*plan->goal.batch % 3, 0);
  EXPECT_EQ(plan->miniBatches, 3u);
}

TEST(Throughput, EvaluatesFewChoices) {
  CompileRequest r = most("llama-3.1-8b", "rtx4090", 64, 8192);
  r.goal.deviceMemory = 24'000'000'000;
  const absl::StatusOr<plan::Plan> plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const size_t at = plan->reason.rfind(", by ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_LE(std::stoi(plan->reason.substr(at + 5)), 2000) << plan->reason;
}

TEST(Throughput, WhatCannotBeIsRefused) {
  CompileRequest r = most("opt-6.7b", "a10", 128, 72);
  r.goal.tpot = std::chrono::milliseconds(1);
  absl::StatusOr<plan::Plan> plan = compile(r);
  EXPECT_TRUE(absl::IsResourceExhausted(plan.status())) << plan.status();
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("opt-6.7b at batch 1 and context 72"));

  const auto refusal = [](const CompileRequest &of) {
    const absl::Status status = compile(of).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  r = most("opt-6.7b", "a10", 128, 72);
  r.goal.batch.reset();
  EXPECT_EQ(refusal(r), "policy.prefer = \"throughput\": expected goal.batch beside it, the most sequences at once");
  r.goal.batch = 128;
  r.buckets.sequences = {1, 128};
  EXPECT_EQ(refusal(r), "policy.prefer = \"throughput\": expected no buckets.sequences beside it: it finds the batch");
  r.buckets.sequences.clear();
  r.policy.name = "headrace";
  r.policy.preferStated = true;
  r.goal.sloFactor = 2;
  EXPECT_THAT(refusal(r), HasSubstr("policy.prefer = \"throughput\": expected policy.name \"joint\" beside it"));
}

} // namespace
} // namespace headrace::compiler
