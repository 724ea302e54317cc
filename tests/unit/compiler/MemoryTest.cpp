// SPDX-License-Identifier: Apache-2.0
//
// Budgets: what is chosen for them, what the least is, and how near that is to what must be live at once.
#include <algorithm>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/support/StatedPlacements.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

uint64_t largestLive(const plan::Plan &plan) {
  uint64_t largest = 0;
  for (uint32_t schedule = 0; schedule < plan.schedules.size(); ++schedule)
    if (plan.schedules[schedule].iterationClass != plan::IterationClass::Transition)
      largest = std::max(largest, plan::largestLiveBytes(plan, schedule));
  return largest;
}

TEST(Budget, TheFewestLayersThatFitAreOffloaded) {
  CompileRequest r = request(tinyLlama(8));
  r.policy.name = "interval";
  r.policy.offloadHead = r.policy.offloadEmbedding = model::AutoOnOff::Off;
  r.policy.slots = 1;
  const auto resident = compile(r);
  ASSERT_TRUE(resident.ok()) << resident.status();
  EXPECT_EQ(plan::offloadedWeights(*resident, resident->placements[0]).layers, 0);
  const uint64_t layer = model::layoutWeights(r.model).layerBytes(0);
  // With one slot, n layers on the host free n - 1 layers of memory.
  for (int64_t freed = 0; freed < 7; ++freed) {
    r.goal.deviceMemory = resident->arenaBytes - static_cast<uint64_t>(freed) * layer;
    const auto plan = compile(r);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan::offloadedWeights(*plan, plan->placements[0]).layers, freed ? freed + 1 : 0);
    EXPECT_LE(plan->arenaBytes, *r.goal.deviceMemory);
  }
}

TEST(Budget, TheEmbeddingGoesFirst) {
  CompileRequest r = request(tinyLlama(4));
  r.policy.name = "interval";
  const auto resident = compile(r);
  ASSERT_TRUE(resident.ok()) << resident.status();
  r.goal.deviceMemory = resident->arenaBytes - 256;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan::offloadedWeights(*plan, plan->placements[0]).layers, 0);
  EXPECT_TRUE(plan::offloadedWeights(*plan, plan->placements[0]).embedding);
  EXPECT_THAT(plan->reason, HasSubstr("offload nothing would take"));
}

struct MinimumCase {
  std::string name;
  CompileRequest request;
};

std::vector<MinimumCase> minimumCases() {
  std::vector<MinimumCase> cases;
  for (const model::ModelSpec &spec : {tinyLlama(7), tinyOpt(7), tinyQwen(6, true), tinyQwen(5, false)}) {
    cases.push_back({spec.name, request(spec)});
    model::ModelSpec large = spec; // a head larger than a layer, and logits larger than both
    large.vocab = 4096;
    large.name += "-large-vocabulary";
    cases.push_back({large.name, request(large)});
    cases.back().request.goal.batch = 64;
  }
  cases.push_back({"llama-3.1-8b", shipped("llama-3.1-8b", "a10", 8, 2048)});
  cases.push_back({"opt-6.7b", shipped("opt-6.7b", "a10", 4, 1024)});
  cases.push_back({"qwen2.5-7b", shipped("qwen2.5-7b", "rtx4090", 1, 512)});
  return cases;
}

TEST(Minimum, IsWithinThreePercentOfWhatIsLiveAtOnce) {
  double largest = 0;
  for (const MinimumCase &c : minimumCases())
    for (const model::StartRule rule : {model::StartRule::Eager, model::StartRule::Paper}) {
      CompileRequest r = c.request;
      r.policy.name = "interval";
      r.policy.startRule = rule;
      const auto least = leastMemory(r);
      ASSERT_TRUE(least.ok()) << c.name << ": " << least.status();
      r.goal.deviceMemory = *least;
      const auto plan = compile(r);
      ASSERT_TRUE(plan.ok()) << c.name << ": " << plan.status();
      EXPECT_EQ(plan->arenaBytes, *least) << c.name;
      const uint64_t live = largestLive(*plan);
      EXPECT_LE(plan->arenaBytes * 100, live * 103)
          << c.name << " " << model::startRuleName(rule) << ": arena " << plan->arenaBytes << ", live " << live;
      largest = std::max(largest, static_cast<double>(plan->arenaBytes) / static_cast<double>(live));
    }
  RecordProperty("largest_arena_over_live", std::to_string(largest));
}

TEST(Minimum, OneStepLessIsRefusedWithTheNumber) {
  for (const MinimumCase &c : minimumCases()) {
    CompileRequest r = c.request;
    r.policy.name = "interval";
    const auto least = leastMemory(r);
    ASSERT_TRUE(least.ok()) << least.status();
    r.goal.deviceMemory = *least - 256;
    r.goal.kvHostMemory = 0; // caches stay whole
    const absl::Status status = compile(r).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << c.name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(*least))) << c.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(*least - 256))) << c.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("KV cache")) << c.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("slots")) << c.name;
  }
}

TEST(Budget, AStatedPlacementThatDoesNotFitSaysWhatWould) {
  CompileRequest r = request(tinyLlama(8));
  r.policy.interval = 4;
  r.goal.deviceMemory = 4096;
  const absl::Status status = compile(r).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("interval 4"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("more layers offloaded"));
}

TEST(Budget, WhatIsOffloadedMustFitTheHost) {
  CompileRequest r = request(tinyLlama(8));
  r.policy.interval = 1;
  r.policy.offloadEmbedding = r.policy.offloadHead = model::AutoOnOff::Off;
  const uint64_t offloaded = 8 * model::layoutWeights(r.model).layerBytes(0);
  r.hardware.hostMemoryBytes = offloaded;
  EXPECT_TRUE(compile(r).ok());
  r.hardware.hostMemoryBytes = offloaded - 1;
  const absl::Status status = compile(r).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(offloaded)));
}

} // namespace
} // namespace headrace::compiler
