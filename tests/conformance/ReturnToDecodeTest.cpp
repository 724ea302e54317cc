// SPDX-License-Identifier: Apache-2.0
//
// After prompts the slots hold what an iteration with prompts leaves. Decoding may go on in such a variant, as no
// transition is to be paid for that, but not for longer than the transition is worth.
#include <gtest/gtest.h>

#include "compiler/Compile.h"
#include "runtime/core/Runtime.h"
#include "runtime/serve/BatchEngine.h"
#include "runtime/sim/SimDevice.h"

namespace headrace {
namespace {

TEST(ReturnToDecode, ATransitionIsPaidOnceWhatItSavesWouldHavePaidForIt) {
  compiler::CompileRequest request;
  request.model = model::openModel("opt-13b")->spec;
  request.modelHash = "0";
  request.hardware = *model::openHardware("a10");
  request.goal.batch = 32;
  request.goal.context = 96;
  request.policy.interval = 5;
  request.buckets = {.newTokens = {32, 256}, .sequences = {32}, .contexts = {96}};
  const absl::StatusOr<plan::Plan> plan = compiler::compile(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto device = sim::makeSimDevice();
  auto runtime = core::Runtime::load(*plan, *device, {}, nullptr, {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();

  const auto isDecode = [&](uint32_t variant) {
    return plan->schedules[plan->variants[variant].schedule].shape == plan::ShapeClass::Decode;
  };
  uint32_t fastest = plan::kNone; // that decodes 32
  for (uint32_t i = 0; i < plan->variants.size(); ++i)
    if (plan->variants[i].sequences == 32 &&
        (fastest == plan::kNone || plan->variants[i].predictedNs < plan->variants[fastest].predictedNs))
      fastest = i;
  ASSERT_TRUE(isDecode(fastest));

  serve::GenerateRequest load;
  load.prompts.assign(32, {1, 2, 3, 4, 5, 6, 7, 8});
  load.maxNewTokens = 80;
  load.separatePrefill = true;
  std::vector<uint32_t> variants;
  load.onIteration = [&](uint32_t variant, int64_t) { variants.push_back(variant); };
  const auto result = serve::generate(**runtime, load);
  ASSERT_TRUE(result.ok()) << result.status();

  uint64_t lost = 0; // by decoding in another variant than the fastest
  for (size_t i = result->prefillIterations; i < variants.size(); ++i)
    lost += plan->variants[variants[i]].predictedNs - plan->variants[fastest].predictedNs;
  EXPECT_EQ(variants.back(), fastest);
  uint64_t longest = 0, slowest = 0;
  for (const plan::Transition &transition : plan->transitions)
    longest = std::max(longest, transition.predictedNs);
  for (const plan::Variant &variant : plan->variants)
    slowest = std::max(slowest, variant.predictedNs);
  EXPECT_LE(lost, longest + slowest - plan->variants[fastest].predictedNs);
}

} // namespace
} // namespace headrace
