// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/generators/Generators.h"

#include <set>

#include "compiler/search/GeneratorInputs.h"
#include "runtime/model/ModelSpec.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Policies, AreFoundByTheirName) {
  std::set<std::string_view> names;
  for (const Generator *policy : allPolicies()) {
    EXPECT_EQ(findPolicy(policy->name), policy);
    EXPECT_FALSE(policy->summary.empty()) << policy->name;
    EXPECT_TRUE(names.insert(policy->name).second) << policy->name;
    EXPECT_THAT(policyNames(), HasSubstr("\"" + std::string(policy->name) + "\""));
  }
  EXPECT_EQ(findPolicy("auto"), nullptr);
  EXPECT_EQ(findPolicy("pies"), nullptr);
}

TEST(Policies, AnUnknownNameIsRefusedWithThoseThereAre) {
  model::Policy asked;
  asked.name = "pies";
  EXPECT_EQ(policyFor(asked, {}).status().message(),
            "policy.name = \"pies\": expected \"auto\", \"interval\", \"none\", \"deepspeed\", \"accelerate\", "
            "\"vllm-prefetch\", \"flexgen\", \"flexgen-nobus\", \"select-n\", \"pie\", \"hybridserve\", "
            "\"flexgen-throughput\", \"lm-offload\", \"zero-inference\", \"headrace\" or "
            "\"joint\"; did you "
            "mean pie?");
}

TEST(Policies, AnObjectiveDecidesWhatAutoIs) {
  model::Goal goal;
  model::Policy asked;
  EXPECT_EQ((*policyFor(asked, goal))->name, "joint");
  asked.placements = 4; // of which it varies none
  EXPECT_EQ((*policyFor(asked, goal))->name, "interval");
  asked = {};
  goal.expansion = 1.5;
  EXPECT_EQ((*policyFor(asked, goal))->name, "interval");
  goal = {};
  asked.startRuleStated = true;
  EXPECT_EQ((*policyFor(asked, goal))->name, "interval");
  asked = {};
  goal.tpot = std::chrono::nanoseconds(1);
  EXPECT_EQ((*policyFor(asked, goal))->name, "joint");
  asked.placements = 4;
  EXPECT_EQ((*policyFor(asked, goal))->name, "headrace");
  asked = {};
  goal.instances = model::Instances::Apart; // for which it takes one placement each
  EXPECT_EQ((*policyFor(asked, goal))->name, "headrace");
  goal.instances = model::Instances::Together;
  asked.interval = 4; // stated: nothing to choose
  EXPECT_EQ((*policyFor(asked, goal))->name, "interval");
  asked = {};
  asked.name = "deepspeed";
  EXPECT_EQ((*policyFor(asked, goal))->name, "deepspeed");
}

TEST(Policies, RefuseWhatTheyCannotBeAskedFor) {
  const auto refusal = [](auto &&change) {
    CompileRequest r = request(tinyLlama(4));
    change(r);
    return std::string(compile(r).status().message());
  };
  for (const Generator *policy : allPolicies()) {
    SCOPED_TRACE(std::string(policy->name));
    const std::string name = "policy.name = \"" + std::string(policy->name) + "\": ";
    if (policy->order == Order::MostFreed) {
      EXPECT_EQ(refusal([&](CompileRequest &r) { r.policy.name = std::string(policy->name); }),
                name + "expected goal.ttft, goal.tpot or goal.slo_factor beside it: it chooses by latency");
    }
    if (!policy->takesPercent) {
      EXPECT_THAT(refusal([&](CompileRequest &r) {
                    r.policy.name = std::string(policy->name);
                    r.policy.percent = model::Percent();
                    r.goal.sloFactor = 2;
                  }),
                  HasSubstr("policy.percent = \"0 100 0 100 0 100\": expected policy.name \"flexgen-throughput\" "
                            "beside it: policy \"" +
                            std::string(policy->name) + "\" has no shares"));
    }
    if (policy->order != Order::LeastAim) {
      EXPECT_THAT(
          refusal([&](CompileRequest &r) {
            r.policy.name = std::string(policy->name);
            r.policy.prefer = model::Prefer::Memory;
            r.policy.preferStated = true;
            r.goal.sloFactor = 2;
          }),
          HasSubstr("policy.prefer = \"memory\": expected policy.name \"joint\" beside it, or no prefer: policy "
                    "\"" +
                    std::string(policy->name) + "\" has an aim of its own"));
    }
    if (policy->statesPlacement)
      continue;
    const auto objective = [&](CompileRequest &r) {
      r.policy.name = std::string(policy->name);
      r.goal.sloFactor = 2;
    };
    EXPECT_EQ(refusal([&](CompileRequest &r) { objective(r), r.policy.interval = 2; }),
              name + "expected \"interval\" where policy.interval or policy.offload_layers state the placement");
    EXPECT_THAT(
        refusal([&](CompileRequest &r) { objective(r), r.policy.startRuleStated = true; }),
        HasSubstr("policy.start_rule = \"eager\": expected policy.name \"interval\" beside it, or no start_rule: "
                  "policy \"" +
                  std::string(policy->name) + "\" has a rule of its own"));
  }
}

// What is away, and how it is brought.
std::vector<std::string> candidatesOf(const Generator &policy, const CompileRequest &r) {
  const Target target = *resolve(r);
  const model::WeightLayout layout = model::layoutWeights(r.model);
  const PlacementFamily family(r.model, layout, target, {}, nullptr);
  const cost::Roofline costs(r.model, r.hardware, target.activation, target.kv);
  Prices prices(costs);
  std::vector<std::string> texts;
  for (const Candidate &candidate : policy.candidates({r, target, layout, family, {}, prices}))
    texts.push_back(candidate.name + ": " + algorithms::toText(candidate.residency));
  return texts;
}

// Units are numbered 1 to 4 in layer 0, 5 to 8 in layer 1, ...; 0 is the embedding, the last the head.
TEST(Accelerate, OffloadsTheEndOfTheModelAndCopiesWhenNeeded) {
  EXPECT_THAT(candidatesOf(*findPolicy("accelerate"), request(tinyLlama(3))),
              ElementsAre("none: start=eager", "the head: weights=13 start=ahead-0 slots=1",
                          "from layer 2: weights=9-13 start=ahead-0 slots=1",
                          "from layer 1: weights=5-13 start=ahead-0 slots=1",
                          "from layer 0: weights=1-13 start=ahead-0 slots=1"));
  // A tied head is the embedding, which stays.
  EXPECT_THAT(candidatesOf(*findPolicy("accelerate"), request(tinyQwen(2, true))),
              ElementsAre("none: start=eager", "from layer 1: weights=5-8 start=ahead-0 slots=1",
                          "from layer 0: weights=1-8 start=ahead-0 slots=1"));
}

// OPT's q, k, v and out are a twelfth of a layer each, up and down a third: at 30% out and down stay.
TEST(FlexGenThroughput, OffersTheUnitsThatAPercentLeaves) {
  CompileRequest r = request(tinyOpt(2));
  const auto of = [&](const model::Percent &percent) {
    r.policy.percent = percent;
    return candidatesOf(*findPolicy("flexgen-throughput"), r);
  };
  EXPECT_THAT(of({100, 0, 100, 0, 100, 0}), ElementsAre("none: start=eager"));
  EXPECT_THAT(of({30, 70, 100, 0, 100, 0}),
              ElementsAre("qkv+up of every layer: weights=1,3,5,7 start=eager slots=2 wrap"));
  EXPECT_THAT(of({0, 100, 100, 0, 100, 0}),
              ElementsAre("qkv+out+up+down of every layer: weights=1-8 start=eager slots=2 wrap"));
  r.policy.offloadEmbedding = model::AutoOnOff::On;
  r.policy.slots = 3;
  EXPECT_THAT(of({30, 70, 100, 0, 100, 0}),
              ElementsAre("qkv+up of every layer: weights=0-1,3,5,7 start=eager slots=3 wrap"));
}

// Compute waits for every copy: a decode iteration takes compute and copies, one behind the other.
TEST(Accelerate, HidesNothing) {
  CompileRequest r = request(tinyLlama(4));
  r.policy.name = "accelerate";
  r.buckets = {.newTokens = {2}, .sequences = {2}, .contexts = {64}};
  auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->placements[0].name, "none");
  const model::WeightLayout layout = model::layoutWeights(r.model);
  r.goal.deviceMemory = plan->arenaBytes - 2 * layout.layerBytes(0);
  plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->placements[0].startRule, model::StartRule::Ahead);
  EXPECT_EQ(plan->placements[0].startItems, 0);
  EXPECT_GT(plan::offloadedWeights(*plan, plan->placements[0]).layers, 0);
  for (const plan::Variant &variant : plan->variants)
    EXPECT_EQ(variant.predictedNs, variant.computeAloneNs + variant.linkAloneNs);
}

// Of 2 layers: groups of 2 (the last, both) and of 1; as many steps as divide what is away. Fewest bytes first.
TEST(VllmPrefetch, OffersTheGridOfItsSettings) {
  EXPECT_THAT(candidatesOf(*findPolicy("vllm-prefetch"), request(tinyLlama(2))),
              ElementsAre("none: start=eager", "group 2, 1 of each, step 1: weights=5-8 start=ahead-1 slots=1",
                          "group 2, 2 of each, step 1: weights=1-8 start=ahead-1 slots=1",
                          "group 2, 2 of each, step 2: weights=1-8 start=ahead-2 slots=2"));
}

// A layer's copy takes as long as ten layers' decode steps; of one layer it hides behind the head alone.
TEST(VllmPrefetch, OneSettingServesAllIterationsWithinTheObjective) {
  CompileRequest r = request(tinyLlama(8));
  r.policy.name = "vllm-prefetch";
  r.goal.sloFactor = 4;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->placements.size(), 1u);
  EXPECT_EQ(plan->placements[0].startRule, model::StartRule::Ahead);
  EXPECT_GT(plan::offloadedWeights(*plan, plan->placements[0]).layers, 0);
  for (const plan::BucketChoice &choice : plan->choices)
    EXPECT_LE(plan->variants[choice.variant].predictedNs, choice.sloNs);
  r.policy.placements = 2;
  EXPECT_EQ(compile(r).status().message(),
            "policy.placements = 2: expected 1: policy \"vllm-prefetch\" has one setting for all iterations");
}

} // namespace
} // namespace headrace::compiler
