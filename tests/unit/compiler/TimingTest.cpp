// SPDX-License-Identifier: Apache-2.0
//
// Predicted times against closed forms: the paper's rule against Select-N's formula, the eager rule against its bound.
#include <algorithm>
#include <string>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "tests/unit/compiler/Requests.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

// Sums of durations of one variant: a layer's compute and copies, and what is neither (embedding, head).
struct Parts {
  uint64_t layerCompute = 0, layerCopies = 0, rest = 0;
};
Parts partsOf(const plan::Plan &plan, const plan::Variant &variant) {
  Parts parts;
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  int32_t copied = -1;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    if (step.kind == plan::StepKind::Copy) {
      copied = copied < 0 ? step.layer : copied;
      if (step.layer == copied)
        parts.layerCopies += variant.durationsNs[i];
    } else if (step.layer == 0) {
      parts.layerCompute += variant.durationsNs[i];
    } else if (step.layer < 0) {
      parts.rest += variant.durationsNs[i];
    }
  }
  return parts;
}

CompileRequest atScale(const char *model, const char *hardware, int64_t batch, int64_t context, model::StartRule rule) {
  CompileRequest r = shipped(model, hardware, batch, context);
  r.goal.deviceMemory = uint64_t{1} << 40; // time is the question here, not memory
  r.policy.startRule = rule;
  r.policy.offloadEmbedding = r.policy.offloadHead = model::AutoOnOff::Off;
  r.buckets.contexts = {context};
  return r;
}

// T(i) = n (max((i-1) t_c, t_t) + t_c) + (L - n i) t_c, and L max(t_c, t_t) for i = 1; embedding and head beside it.
TEST(PaperRule, IsWithinThreePercentOfTheClosedFormForEveryInterval) {
  for (const char *model : {"opt-6.7b", "llama-2-13b"}) {
    CompileRequest r = atScale(model, "a10", 16, 256, model::StartRule::Paper);
    r.buckets.sequences = {1, 16};
    r.buckets.newTokens = {64, 1024};
    const int64_t layers = r.model->layers;
    for (int64_t i = 1; i <= layers; ++i) {
      r.policy.interval = i;
      const auto plan = compile(r);
      ASSERT_TRUE(plan.ok()) << plan.status();
      for (const plan::Variant &variant : plan->variants) {
        const Parts parts = partsOf(*plan, variant);
        const double tc = static_cast<double>(parts.layerCompute), tt = static_cast<double>(parts.layerCopies);
        const int64_t n = layers / i;
        const double form = (i == 1 ? static_cast<double>(layers) * std::max(tc, tt)
                                    : static_cast<double>(n) * (std::max(static_cast<double>(i - 1) * tc, tt) + tc) +
                                          static_cast<double>(layers - n * i) * tc) +
                            static_cast<double>(parts.rest);
        EXPECT_NEAR(static_cast<double>(variant.predictedNs), form, 0.03 * form)
            << model << " interval " << i << ", " << variant.newTokens << " tokens";
      }
    }
  }
}

TEST(EagerRule, IsWithinFivePercentOfTheLongerLaneForEveryInterval) {
  for (const auto &[model, hardware] : {std::pair{"opt-6.7b", "a10"}, {"llama-3.1-8b", "gh200"}, {"opt-13b", "h100"}}) {
    CompileRequest r = atScale(model, hardware, 32, 512, model::StartRule::Eager);
    r.buckets.sequences = {1, 32};
    r.buckets.newTokens = {64, 256, 1024, 2048};
    for (int64_t i = 1; i <= r.model->layers; ++i) {
      r.policy.interval = i;
      const auto plan = compile(r);
      ASSERT_TRUE(plan.ok()) << plan.status();
      for (const plan::Variant &variant : plan->variants) {
        const uint64_t bytes = plan::linkBytes(plan->schedules[variant.schedule]).h2d;
        const double link = static_cast<double>(bytes) / r.hardware.h2dBandwidth * 1e9;
        const double bound = std::max(static_cast<double>(variant.computeAloneNs), link);
        EXPECT_LE(static_cast<double>(variant.predictedNs), 1.05 * bound)
            << model << " on " << hardware << ", interval " << i << ", " << variant.newTokens << " tokens of "
            << variant.sequences << ": compute " << variant.computeAloneNs << ", link " << link;
      }
    }
  }
}

TEST(EagerRule, AnEntryStateIsWhatTheExitLeaves) {
  CompileRequest r = request(tinyLlama(8));
  r.policy.interval = 2;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const plan::Schedule &schedule : plan->schedules)
    if (schedule.iterationClass != plan::IterationClass::Transition) {
      EXPECT_EQ(schedule.entryState, schedule.exitState);
    }
  // From the empty state there is a way to each.
  for (const plan::Schedule &schedule : plan->schedules)
    if (schedule.iterationClass != plan::IterationClass::Transition && schedule.entryState != 0) {
      EXPECT_TRUE(std::any_of(plan->transitions.begin(), plan->transitions.end(), [&](const plan::Transition &t) {
        return t.fromState == 0 && t.toState == schedule.entryState;
      }));
    }
}

TEST(PaperRule, NothingCrossesAnIterationsEdge) {
  CompileRequest r = request(tinyLlama(8));
  r.policy.interval = 2;
  r.policy.startRule = model::StartRule::Paper;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->states.size(), 1u);
  EXPECT_TRUE(plan->transitions.empty());
  EXPECT_EQ(plan->placements[0].slots.size(), 1u);
}

} // namespace
} // namespace headrace::compiler
