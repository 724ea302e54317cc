// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/GraphSteps.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/TinyPlan.h"

namespace headrace::core {
namespace {

using plan::kNone;
using testing::ElementsAre;
using testing::HasSubstr;

// Compute steps ("c"), copies in ("i") and out ("o"), and publishes ("p").
plan::Schedule scheduleOf(const std::string &steps, const std::vector<plan::Edge> &edges = {}) {
  plan::Schedule schedule;
  schedule.name = "S";
  schedule.edges = edges;
  for (const char kind : steps) {
    plan::Step step;
    step.kind = kind == 'c' ? plan::StepKind::Compute : kind == 'p' ? plan::StepKind::Publish : plan::StepKind::Copy;
    if (step.kind == plan::StepKind::Copy) {
      step.lane = kind == 'i' ? plan::Lane::H2D : plan::Lane::D2H;
      step.firstOperand = static_cast<uint32_t>(schedule.operands.size());
      step.operandCount = 2;
      const plan::Operand host{.space = plan::Space::Host, .bytes = 256, .address = 512};
      const plan::Operand device{.bytes = 256, .address = 1024};
      schedule.operands.push_back(kind == 'i' ? host : device);
      schedule.operands.push_back(kind == 'i' ? device : host);
    }
    schedule.steps.push_back(step);
  }
  return schedule;
}

std::string refusal(const plan::Schedule &schedule, bool transition = false) {
  static const plan::Variant kVariant;
  const absl::Status status =
      checkSteps({.schedule = &schedule, .variant = transition ? nullptr : &kVariant}, "the device");
  EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(GraphSteps, AKeyIsAVariantOrATransitionOfThePlan) {
  plan::Plan plan = tinyPlan({.spec = tinyLlama(4), .offloaded = {1, 3}, .wrap = true});
  const auto variant = graphSource(plan, {.transition = false, .index = 1});
  ASSERT_TRUE(variant.ok()) << variant.status();
  EXPECT_EQ(variant->variant, &plan.variants[1]);
  EXPECT_EQ(variant->schedule, &plan.schedules[plan.variants[1].schedule]);
  EXPECT_EQ(variant->durationsNs.data(), plan.variants[1].durationsNs.data());
  EXPECT_EQ(variant->bucket.tokens, plan.variants[1].newTokens);
  EXPECT_EQ(variant->bucket.sequences, plan.variants[1].sequences);
  ASSERT_FALSE(plan.transitions.empty());
  const auto transition = graphSource(plan, {.transition = true, .index = 0});
  ASSERT_TRUE(transition.ok()) << transition.status();
  EXPECT_EQ(transition->variant, nullptr);
  EXPECT_EQ(transition->schedule, &plan.schedules[plan.transitions[0].schedule]);

  EXPECT_EQ(graphSource(plan, {.transition = false, .index = 2}).status().message(),
            "variant 2 to build, the plan has 2");
  EXPECT_EQ(graphSource(plan, {.transition = true, .index = 7}).status().message(),
            "transition 7 to build, the plan has 1");
  plan.variants[0].schedule = 9;
  EXPECT_THAT(std::string(graphSource(plan, {}).status().message()), HasSubstr("variant 0: schedule 9, the plan has "));
}

TEST(GraphSteps, StepsOfAFormThatNoGraphHasAreRefused) {
  EXPECT_EQ(refusal(scheduleOf("icop")), "");
  EXPECT_EQ(refusal(scheduleOf("io"), /*transition=*/true), "");
  EXPECT_EQ(refusal(scheduleOf("ic"), /*transition=*/true), "schedule 'S', step 1: a transition has copies only");
  EXPECT_EQ(refusal(scheduleOf("p"), /*transition=*/true), "schedule 'S', step 0: a transition has copies only");
  EXPECT_EQ(refusal(scheduleOf("cc")), "schedule 'S': 0 publish steps, expected 1");
  EXPECT_EQ(refusal(scheduleOf("cpp")), "schedule 'S': 2 publish steps, expected 1");
  plan::Schedule schedule = scheduleOf("icp");
  schedule.steps[1].lane = plan::Lane::Disk;
  EXPECT_EQ(refusal(schedule), "schedule 'S', step 1: lane 'disk': the device has compute, h2d and d2h");
  schedule.steps[1].lane = plan::Lane::D2H;
  EXPECT_EQ(refusal(schedule), "schedule 'S', step 1: compute in lane 'd2h'");
  schedule = scheduleOf("icp");
  schedule.steps[2].lane = plan::Lane::H2D;
  EXPECT_EQ(refusal(schedule), "schedule 'S', step 2: publish in lane 'h2d'");
  schedule = scheduleOf("icp");
  schedule.operands.pop_back();
  EXPECT_EQ(refusal(schedule), "schedule 'S', step 0: its operands are outside the schedule's list");
}

TEST(GraphSteps, ACopysSidesAreWhereItsDirectionSays) {
  std::byte device[2048], host[1024];
  const GraphSpaces spaces{{device, host}, sizeof(device), sizeof(host)};
  const auto in = copySides(scheduleOf("i"), 0, spaces), out = copySides(scheduleOf("o"), 0, spaces);
  ASSERT_TRUE(in.ok() && out.ok());
  EXPECT_TRUE(in->toDevice);
  EXPECT_EQ(in->source, host + 512);
  EXPECT_EQ(in->destination, device + 1024);
  EXPECT_EQ(in->bytes, 256u);
  EXPECT_FALSE(out->toDevice);
  EXPECT_EQ(out->source, device + 1024);
  EXPECT_EQ(out->destination, host + 512);

  const auto refused = [&](auto &&change) {
    plan::Schedule schedule = scheduleOf("i");
    change(schedule);
    return std::string(copySides(schedule, 0, spaces).status().message());
  };
  EXPECT_THAT(refused([](plan::Schedule &s) { s.steps[0].operandCount = 1; }),
              HasSubstr("step 0: a copy has 2 operands, this one 1"));
  EXPECT_THAT(refused([](plan::Schedule &s) { s.steps[0].lane = plan::Lane::D2H; }),
              HasSubstr("a copy in lane 'd2h' whose sides are not those of its direction"));
  EXPECT_THAT(refused([](plan::Schedule &s) { s.operands[1].bytes = 128; }), HasSubstr("a copy of 256 bytes to 128"));
  EXPECT_THAT(refused([](plan::Schedule &s) { s.operands[0].address = 769; }), // 769 + 256 is one more than 1024
              HasSubstr("bytes [769, +256) are outside the host slab of 1024"));
  EXPECT_THAT(refused([](plan::Schedule &s) { s.operands[1].address = ~uint64_t{0}; }),
              HasSubstr("are outside the arena of 2048"));
}

TEST(GraphSteps, ALaneWaitsForTheLastStepOfAnotherOnce) {
  // h2d: 0, 1; compute: 2, 3, 4 and the publish.
  const auto waits = stepWaits(scheduleOf("iicccp", {{0, 2}, {1, 2}, {0, 3}, {2, 3}, {1, 4}, {0, 4}}));
  ASSERT_TRUE(waits.ok()) << waits.status();
  EXPECT_THAT((*waits)[2], ElementsAre(kNone, 1, kNone));     // of 0 and 1 the last
  EXPECT_THAT((*waits)[3], ElementsAre(kNone, kNone, kNone)); // 2 has waited for 1; it is in the lane of 3 itself
  EXPECT_THAT((*waits)[4], ElementsAre(kNone, kNone, kNone));
  // What one lane has waited for another has not: 1 is waited for by compute and by d2h.
  const auto both = stepWaits(scheduleOf("cicop", {{0, 1}, {1, 2}, {1, 3}, {2, 3}, {3, 4}}));
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_THAT((*both)[1], ElementsAre(0, kNone, kNone));
  EXPECT_THAT((*both)[2], ElementsAre(kNone, 1, kNone));
  EXPECT_THAT((*both)[3], ElementsAre(2, 1, kNone));
  EXPECT_THAT((*both)[4], ElementsAre(kNone, kNone, 3));
  EXPECT_THAT(std::string(stepWaits(scheduleOf("icp", {{1, 0}})).status().message()),
              HasSubstr("edge from step 1 to 0"));
  EXPECT_THAT(std::string(stepWaits(scheduleOf("icp", {{0, 9}})).status().message()),
              HasSubstr("edge from step 0 to 9"));
}

} // namespace
} // namespace headrace::core
