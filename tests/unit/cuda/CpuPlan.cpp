// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/cuda/CpuPlan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/Compile.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/core/Runtime.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tests/support/TinyPlan.h"

namespace headrace::cuda {

plan::Plan planOnCpu(model::ModelSpec spec, const std::string &more, int64_t miniBatches) {
  spec.layers = 2;
  std::string error;
  const std::optional<compiler::Choice> choice =
      compiler::choiceFromText("mini-batches=" + std::to_string(miniBatches) + " kv=0-1 attention=cpu " + more, error);
  EXPECT_TRUE(choice.has_value()) << error;
  compiler::CompileRequest request;
  request.model = spec;
  request.hardware = core::tinyPlan({.spec = core::tinyLlama(1), .kind = model::DeviceKind::Cuda}).hardware;
  request.goal.batch = 2 * miniBatches;
  request.goal.context = 40;
  request.goal.blockTokens = 4;
  request.goal.miniBatches = miniBatches;
  request.buckets = {.newTokens = {2, 8}, .sequences = {2}, .contexts = {40}};
  compiler::Candidate &candidate = request.placements.emplace_back();
  static_cast<compiler::Choice &>(candidate) = choice.value_or(compiler::Choice());
  candidate.name = "placement 0";
  auto plan = compiler::compile(request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : plan::Plan();
}

uint64_t cpuSteps(const plan::Schedule &schedule) {
  return static_cast<uint64_t>(std::count_if(schedule.steps.begin(), schedule.steps.end(),
                                             [](const plan::Step &step) { return step.lane == plan::Lane::Cpu; }));
}

uint32_t decoding(const plan::Plan &plan) {
  for (uint32_t i = 0; i < plan.variants.size(); ++i)
    if (cpuSteps(plan.schedules[plan.variants[i].schedule]) > 0)
      return i;
  ADD_FAILURE() << "no variant has steps of the CPU's";
  return 0;
}

absl::StatusOr<Replies> generateReplies(core::Device &device, const plan::Plan &plan, bool keepLogits, bool trace) {
  const auto weights = model::syntheticWeights(1);
  ASSIGN_OR_RETURN(runtime, core::Runtime::load(plan, device, {.trace = trace}, weights.get(), {}));
  serve::GenerateRequest request;
  request.prompts = {{3, 1, 4, 1, 5, 9, 2, 6, 5}, {7}, {2, 7, 1}, {8, 2, 8, 1, 8}};
  request.maxNewTokens = 7;
  request.keepLogits = keepLogits;
  ASSIGN_OR_RETURN(made, serve::generate(*runtime, request));
  return Replies{std::move(made.tokens), std::move(made.logits)};
}

Replies replies(core::Device &device, const plan::Plan &plan, bool keepLogits, bool trace) {
  absl::StatusOr<Replies> made = generateReplies(device, plan, keepLogits, trace);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : Replies();
}

} // namespace headrace::cuda
