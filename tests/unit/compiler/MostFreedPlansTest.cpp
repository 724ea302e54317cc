// SPDX-License-Identifier: Apache-2.0
//
// The choice by latency through the whole compiler: what is chosen is the best there is, it holds, and where nothing
// holds the minima that the refusal names are exact.
#include "compiler/Compile.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "runtime/base/Units.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/PlacementTable.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <rapidcheck/gtest.h>

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

// One decode bucket and, where tokens are given, one of prefill.
CompileRequest oneBucket(CompileRequest r, const std::string &policy, int64_t tokens = 0) {
  r.policy.name = policy;
  r.buckets.sequences = {*r.goal.batch};
  r.buckets.contexts = {*r.goal.context};
  if (tokens > 0)
    r.buckets.newTokens = {tokens};
  return r;
}

struct Chosen {
  int64_t freed = 0;
  uint64_t predictedNs = 0, sloNs = 0, residentNs = 0;
  const plan::Placement *placement = nullptr;
};

// Of the last bucket of a class.
Chosen chosenOf(const plan::Plan &plan, bool decode) {
  Chosen chosen;
  for (const plan::BucketChoice &choice : plan.choices) {
    const plan::Variant &v = plan.variants[choice.variant];
    if ((plan.schedules[v.schedule].iterationClass == plan::IterationClass::Decode) == decode)
      chosen = {plan::freedBytes(plan, v.placement), v.predictedNs, choice.sloNs, choice.residentNs,
                &plan.placements[v.placement]};
  }
  return chosen;
}

// The number that follows `text` in a message.
uint64_t numberAfter(const absl::Status &status, const std::string &text) {
  const std::string message(status.message());
  const size_t at = message.find(text);
  EXPECT_NE(at, std::string::npos) << message;
  return at == std::string::npos ? 0 : std::stoull(message.substr(at + text.size()));
}
uint64_t timeAfter(const absl::Status &status, const std::string &text) {
  const std::string message(status.message());
  const size_t at = message.find(text);
  EXPECT_NE(at, std::string::npos) << message;
  if (at == std::string::npos)
    return 0;
  const std::string rest = message.substr(at + text.size());
  const auto seconds = model::parseSeconds(rest.substr(0, rest.find("ms") + 2), "message");
  EXPECT_TRUE(seconds.ok()) << message;
  return static_cast<uint64_t>(std::llround(seconds.value_or(0) * 1e9));
}

// --- The best there is ---

// Rows of an embedding that are read over the link take time that nothing hides. Where the objective has none, copies
// that hide behind compute still free what they can: two layers behind a slot of one of them.
TEST(MostFreedPlans, AnObjectiveWithoutTimeForTheEmbeddingsReadKeepsItOnTheDevice) {
  CompileRequest r = oneBucket(request(tinyQwen(2, false)), "headrace", 16);
  r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = 3e9;
  r.hardware.duplexBandwidth = 6e9;
  for (const double factor : {1.0, 1.001}) {
    r.goal.sloFactor = factor;
    r.goal.instances = model::Instances::Apart; // a placement for each bucket
    const auto plan = compile(r);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const Chosen mixed = chosenOf(*plan, false);
    EXPECT_LE(mixed.predictedNs, mixed.sloNs);
    const auto layer = static_cast<int64_t>(model::layoutWeights(r.model).layerBytes(0));
    EXPECT_GE(mixed.freed, layer) << plan->reason;
  }
}

// Against every placement that the family has, compiled one by one: whole layers and intervals, both rules, slots, the
// embedding and the head.
RC_GTEST_PROP(MostFreedPlans, FreesAsMuchAsTheBestOfAllPlacementsThatHold, ()) {
  const auto layers = *rc::gen::inRange<int64_t>(2, 7);
  CompileRequest r = oneBucket(request(*rc::gen::element(tinyLlama(layers), tinyOpt(layers), tinyQwen(layers, false))),
                               *rc::gen::element<std::string>("select-n", "headrace"), 16);
  r.hardware.h2dBandwidth = r.hardware.d2hBandwidth = *rc::gen::element(0.1e9, 1e9, 3e9, 30e9);
  r.hardware.duplexBandwidth = 2 * r.hardware.h2dBandwidth;
  r.goal.sloFactor = *rc::gen::inRange(100, 400) / 100.0;
  r.goal.instances = model::Instances::Apart; // a placement for each bucket
  const auto plan = compile(r);
  RC_ASSERT(plan.ok());

  int64_t bestDecode = 0, bestMixed = 0;
  const auto weigh = [&](model::Policy policy) {
    CompileRequest stated = r;
    stated.policy = policy;
    const auto one = compile(stated);
    RC_ASSERT(one.ok());
    for (const bool decode : {true, false})
      if (const Chosen c = chosenOf(*one, decode); c.predictedNs <= c.sloNs)
        (decode ? bestDecode : bestMixed) = std::max(decode ? bestDecode : bestMixed, c.freed);
  };
  for (const model::StartRule rule : {model::StartRule::Paper, model::StartRule::Eager}) {
    if (r.policy.name == "select-n" && rule == model::StartRule::Eager)
      continue;
    for (int64_t n = 1; n <= layers; ++n) {
      model::Policy policy;
      policy.startRule = rule;
      policy.offloadEmbedding = policy.offloadHead = model::AutoOnOff::Off;
      policy.interval = n;
      weigh(policy);
      if (r.policy.name == "select-n")
        continue;
      policy.interval.reset();
      policy.offloadLayers = n;
      for (const int64_t slots : {1, 2}) {
        policy.slots = slots;
        weigh(policy);
        policy.offloadEmbedding = policy.offloadHead = model::AutoOnOff::On;
        weigh(policy);
        policy.offloadEmbedding = policy.offloadHead = model::AutoOnOff::Off;
      }
    }
  }
  for (const bool decode : {true, false}) {
    const Chosen chosen = chosenOf(*plan, decode);
    RC_ASSERT(chosen.predictedNs <= chosen.sloNs);
    if (r.policy.name == "select-n")
      RC_ASSERT(chosen.freed == (decode ? bestDecode : bestMixed));
    else // single units may do better
      RC_ASSERT(chosen.freed >= (decode ? bestDecode : bestMixed));
  }
}

TEST(MostFreedPlans, OffloadsNothingWhereTheObjectiveLeavesNoRoom) {
  for (const char *policy : {"select-n", "headrace"}) {
    CompileRequest r = oneBucket(request(tinyOpt(4)), policy, 16);
    r.hardware.duplexBandwidth = 1e9;
    r.hardware.h2dBandwidth = 1e6; // the smallest unit takes 16 ms, an iteration less than 1 ms
    r.goal.sloFactor = 1;
    const auto plan = compile(r);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->placements.size(), 1u);
    EXPECT_EQ(plan->placements[0].name, "none");
    EXPECT_EQ(plan->choices.size(), 2u);
    EXPECT_EQ(chosenOf(*plan, true).predictedNs, chosenOf(*plan, true).residentNs);
    EXPECT_THAT(plan->reason, HasSubstr("offload nothing"));
  }
}

TEST(MostFreedPlans, PrefillAndDecodeAreChosenApart) {
  CompileRequest r = oneBucket(shipped("opt-6.7b", "a10", 16, 64), "select-n", 1024);
  r.goal.tpot = std::chrono::nanoseconds(60'000'000);
  r.goal.ttft = std::chrono::nanoseconds(400'000'000);
  r.goal.instances = model::Instances::Apart;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->placements.size(), 2u);
  EXPECT_EQ(chosenOf(*plan, true).sloNs, 60'000'000u);
  EXPECT_EQ(chosenOf(*plan, false).sloNs, 400'000'000u);
  EXPECT_GT(chosenOf(*plan, false).freed, chosenOf(*plan, true).freed);
  EXPECT_EQ(chosenOf(*plan, true).placement, plan->placements.data()); // first: what decides
}

TEST(MostFreedPlans, AClassWithoutAnObjectiveTakesWhatTheOtherHas) {
  CompileRequest r = oneBucket(shipped("opt-6.7b", "a10", 16, 64), "select-n", 1024);
  r.goal.tpot = std::chrono::nanoseconds(60'000'000);
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->placements.size(), 1u);
  EXPECT_EQ(chosenOf(*plan, false).sloNs, 0u);
}

TEST(MostFreedPlans, AnObjectiveAloneIsOneOfTheSearch) {
  CompileRequest r = oneBucket(request(tinyLlama(3)), "auto");
  r.goal.tpot = std::chrono::nanoseconds(1'000'000'000);
  EXPECT_EQ(compile(r)->policy.name, "joint");
  EXPECT_EQ(compile(r)->choices.front().sloNs, 1'000'000'000u);
  r.goal.tpot.reset();
  EXPECT_EQ(compile(r)->policy.name, "joint");
  EXPECT_TRUE(compile(r)->choices.empty());
}

// --- Over a sweep: who holds, and by how much the baselines miss ---

TEST(MostFreedPlans, SelectNAndHeadraceHoldEverywhereAndDeepspeedMissesSeveralTimesOver) {
  double worstDeepspeed = 0;
  for (const char *model : {"opt-6.7b", "qwen1.5-7b"})
    for (const int64_t batch : {1, 128})
      for (const double factor : {1.02, 1.3, 2.0}) {
        SCOPED_TRACE(absl::StrCat(model, " batch ", batch, " factor ", factor));
        CompileRequest r = oneBucket(shipped(model, "a10", batch, 64), "select-n", batch * 8);
        r.goal.deviceMemory = 100'000'000'000; // nothing but the objective decides
        r.goal.sloFactor = factor;
        const auto selectN = compile(r);
        ASSERT_TRUE(selectN.ok()) << selectN.status();
        r.policy.name = "headrace";
        const auto headrace = compile(r);
        ASSERT_TRUE(headrace.ok()) << headrace.status();
        r.policy.name = "deepspeed";
        const auto deepspeed = compile(r);
        ASSERT_TRUE(deepspeed.ok()) << deepspeed.status();
        for (const bool decode : {true, false}) {
          const Chosen ours = chosenOf(*headrace, decode), theirs = chosenOf(*selectN, decode);
          EXPECT_LE(ours.predictedNs, ours.sloNs);
          EXPECT_LE(theirs.predictedNs, theirs.sloNs);
          EXPECT_GE(ours.freed, theirs.freed);
        }
        const Chosen all = chosenOf(*deepspeed, true);
        const double ratio = static_cast<double>(all.predictedNs) / static_cast<double>(all.sloNs);
        EXPECT_GT(ratio, 4); // a layer's copy takes 10 to 14 times its compute
        worstDeepspeed = std::max(worstDeepspeed, ratio);
      }
  EXPECT_GT(worstDeepspeed, 8);
}

// --- What cannot be met ---

// Alone on its bus, at batch 8, single units hold what whole layers cannot: 100 ms x 24 GB/s is 2.4 GB, about as much
// as must be away.
TEST(MostFreedPlans, SingleUnitsHold13BModelsAtBatch8WhereIntervalsDoNot) {
  for (const char *model : {"opt-13b", "llama-13b"}) {
    CompileRequest r = oneBucket(shipped(model, "a10", 8, 64), "select-n", 8);
    r.goal.tpot = std::chrono::nanoseconds(100'000'000);
    EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kResourceExhausted);
    r.policy.name = "headrace";
    const auto held = compile(r);
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_LE(chosenOf(*held, true).predictedNs, 100'000'000u);
    EXPECT_LE(held->arenaBytes, 24'000'000'000u);
  }
}

class Impossible : public ::testing::TestWithParam<std::tuple<const char *, const char *, int64_t>> {
protected:
  CompileRequest asked() const {
    const auto [model, policy, batch] = GetParam();
    CompileRequest r = oneBucket(shipped(model, "a10", batch, 64), policy);
    r.buckets.newTokens = {batch}; // decode only
    return r;
  }
};
INSTANTIATE_TEST_SUITE_P(Section55, Impossible,
                         ::testing::Combine(::testing::Values("opt-13b", "llama-13b"),
                                            ::testing::Values("select-n", "headrace"), ::testing::Values(8, 32)));

// Two 13B models in 24 GB at a TPOT of 100 ms (90 ms where single units hold 100 alone): less than they take.
TEST_P(Impossible, IsRefusedWithMinimaThatAreExact) {
  CompileRequest r = asked();
  const auto [model, policy, batch] = GetParam();
  const uint64_t tpotNs = std::string(policy) == "headrace" && batch == 8 ? 90'000'000 : 100'000'000;
  r.goal.tpot = std::chrono::nanoseconds(tpotNs);
  const auto refused = compile(r);
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  const uint64_t leastNs = timeAfter(refused.status(), "the minimum TPOT is ");
  const uint64_t bytesAtTpot = numberAfter(refused.status(), "the minimum memory is ");
  const uint64_t bytesAtAny = numberAfter(refused.status(), "the minimum memory at any latency is ");
  EXPECT_GT(leastNs, tpotNs);
  EXPECT_GT(bytesAtTpot, 24'000'000'000u);
  EXPECT_LT(bytesAtAny, bytesAtTpot);

  r.goal.tpot = std::chrono::nanoseconds(leastNs); // held at the smallest feasible TPOT
  const auto held = compile(r);
  ASSERT_TRUE(held.ok()) << held.status();
  EXPECT_LE(chosenOf(*held, true).predictedNs, leastNs);
  EXPECT_LE(held->arenaBytes, 24'000'000'000u);
  r.goal.tpot = std::chrono::nanoseconds(leastNs - 1);
  EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kResourceExhausted);

  r.goal.tpot = std::chrono::nanoseconds(tpotNs);
  r.goal.deviceMemory = bytesAtTpot;
  EXPECT_TRUE(compile(r).ok()) << compile(r).status();
  r.goal.deviceMemory = bytesAtTpot - 1;
  EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kResourceExhausted);

  r.goal.tpot = std::chrono::nanoseconds(1'000'000'000'000'000); // the longest there is
  r.goal.deviceMemory = bytesAtAny;
  EXPECT_TRUE(compile(r).ok()) << compile(r).status();
  r.goal.deviceMemory = bytesAtAny - 1;
  EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_P(Impossible, AFactorIsRefusedWithTheLeastThatHolds) {
  CompileRequest r = asked();
  r.goal.sloFactor = 1.01;
  const auto refused = compile(r);
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  const std::string message(refused.status().message()), before = "the minimum slo_factor is ";
  ASSERT_THAT(message, HasSubstr(before));
  const double least = std::stod(message.substr(message.find(before) + before.size()));
  r.goal.sloFactor = least;
  EXPECT_TRUE(compile(r).ok()) << compile(r).status();
  r.goal.sloFactor = least - 1e-6;
  EXPECT_EQ(compile(r).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(MostFreedPlans, AnObjectiveThatNoMemoryMeetsSaysSo) {
  CompileRequest r = oneBucket(shipped("opt-13b", "a10", 8, 64), "headrace");
  r.goal.deviceMemory = 100'000'000'000;
  r.goal.tpot = std::chrono::nanoseconds(1'000'000); // 80 ms of compute
  const auto refused = compile(r);
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("no memory would do at this TPOT"));
  r.goal.tpot = std::chrono::nanoseconds(timeAfter(refused.status(), "the minimum TPOT is "));
  EXPECT_TRUE(compile(r).ok());
  r.goal.tpot = std::chrono::nanoseconds(r.goal.tpot->count() - 1);
  EXPECT_FALSE(compile(r).ok());
}

TEST(MostFreedPlans, TooLittleMemoryForAnythingIsSaidAsWithoutAnObjective) {
  CompileRequest r = oneBucket(request(tinyLlama(3)), "headrace");
  r.goal.deviceMemory = 4096;
  r.goal.sloFactor = 2;
  const auto refused = compile(r);
  ASSERT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  r.goal.deviceMemory = numberAfter(refused.status(), "the minimum is ");
  r.goal.sloFactor = 1e6;
  EXPECT_TRUE(compile(r).ok()) << compile(r).status();
}

// --- Several placements ---

TEST(MostFreedPlans, APlanCarriesARangeOfPlacements) {
  CompileRequest r = shipped("opt-6.7b", "a10", 16, 64);
  r.policy.name = "select-n";
  r.policy.placements = 6;
  r.goal.sloFactor = 2;
  r.goal.instances = model::Instances::Apart;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->placements.size(), 6u);
  std::set<int64_t> freed;
  for (uint32_t p = 0; p < plan->placements.size(); ++p)
    freed.insert(plan::freedBytes(*plan, p));
  EXPECT_EQ(freed.size(), 6u);
  EXPECT_EQ(*freed.begin(), 0); // everything fits, so the range begins with nothing offloaded
  // What the table of the plan answers for the goal's objectives is what the compiler chose.
  const plan::PlacementTable table(*plan);
  for (const plan::BucketChoice &choice : plan->choices) {
    const plan::Variant &v = plan->variants[choice.variant];
    const std::optional<uint32_t> found = table.choose({v.newTokens, v.sequences, v.context}, choice.sloNs);
    ASSERT_TRUE(found);
    EXPECT_GE(plan::freedBytes(*plan, plan->variants[*found].placement), plan::freedBytes(*plan, v.placement));
    EXPECT_LE(plan->variants[*found].predictedNs, choice.sloNs);
  }
}

TEST(MostFreedPlans, TheRangeOfHeadraceReachesFromTheLeastThatFitsToTheMostThatHolds) {
  CompileRequest r = oneBucket(shipped("opt-6.7b", "a10", 32, 128), "headrace", 32);
  r.policy.placements = 8;
  r.goal.sloFactor = 2;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->placements.size(), 8u);
  std::vector<int64_t> freed;
  for (uint32_t p = 0; p < plan->placements.size(); ++p)
    freed.push_back(plan::freedBytes(*plan, p));
  EXPECT_EQ(freed[1], 0); // the first decides, the others ascend
  EXPECT_TRUE(std::is_sorted(freed.begin() + 1, freed.end()));
  EXPECT_EQ(*std::max_element(freed.begin(), freed.end()), freed[0]);
  // No gap is wider than three eighths of the range.
  std::sort(freed.begin(), freed.end());
  for (size_t p = 1; p < freed.size(); ++p)
    EXPECT_LT(freed[p] - freed[p - 1], freed.back() * 3 / 8);
}

TEST(MostFreedPlans, ARangeNeedsNoObjective) {
  CompileRequest r = oneBucket(request(tinyLlama(6)), "auto", 16);
  r.policy.placements = 4;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->policy.name, "interval");
  EXPECT_EQ(plan->placements.size(), 4u);
  EXPECT_EQ(plan->placements[0].name, "none");
}

TEST(MostFreedPlans, MoreBucketsThanPlacementsShareThemAndStillHold) {
  CompileRequest r = shipped("opt-6.7b", "a10", 64, 256);
  r.goal.sloFactor = 1.5;
  for (const int64_t most : {1, 2, 4}) {
    r.policy.placements = most;
    const auto plan = compile(r);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_LE(plan->placements.size(), static_cast<size_t>(most));
    for (const plan::BucketChoice &choice : plan->choices)
      EXPECT_LE(plan->variants[choice.variant].predictedNs, choice.sloNs);
  }
}

TEST(MostFreedPlans, TheSameRequestGivesTheSameChoice) {
  CompileRequest r = oneBucket(shipped("opt-6.7b", "a10", 16, 64), "headrace", 256);
  r.goal.sloFactor = 1.3;
  const auto first = compile(r), second = compile(r);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->reason, second->reason);
  ASSERT_EQ(first->variants.size(), second->variants.size());
  for (size_t v = 0; v < first->variants.size(); ++v)
    EXPECT_EQ(first->variants[v].durationsNs, second->variants[v].durationsNs);
}

TEST(MostFreedPlans, WhatTheUserKeepsOnTheDeviceStays) {
  CompileRequest r = oneBucket(request(tinyLlama(4)), "headrace", 16);
  r.policy.offloadEmbedding = r.policy.offloadHead = model::AutoOnOff::Off;
  r.goal.sloFactor = 100;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const plan::Placement &placement : plan->placements) {
    EXPECT_FALSE(plan::offloadedWeights(*plan, placement).embedding);
    EXPECT_FALSE(plan::offloadedWeights(*plan, placement).head);
  }
}

TEST(MostFreedPlans, BadGoalsAndPoliciesAreRefusedByName) {
  const auto refusal = [](auto change) {
    CompileRequest r = request(tinyLlama(3));
    change(r);
    const absl::Status status = compile(r).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal([](CompileRequest &r) { r.goal.tpot = std::chrono::nanoseconds(0); }),
              HasSubstr("goal.tpot = 0: expected a time above zero"));
  EXPECT_THAT(refusal([](CompileRequest &r) { r.goal.ttft = std::chrono::nanoseconds(0); }),
              HasSubstr("goal.ttft = 0: expected a time above zero"));
  EXPECT_THAT(refusal([](CompileRequest &r) { r.goal.sloFactor = 0.5; }),
              HasSubstr("goal.slo_factor = 0.5: expected a finite factor of at least 1"));
  EXPECT_THAT(refusal([](CompileRequest &r) { r.goal.sloFactor = std::nan(""); }),
              HasSubstr("goal.slo_factor = nan: expected a finite factor of at least 1"));
  EXPECT_THAT(refusal([](CompileRequest &r) { r.goal.sloFactor = 2, r.goal.tpot = std::chrono::nanoseconds(5); }),
              HasSubstr("goal.slo_factor = 2: expected no ttft or tpot beside it"));
  EXPECT_THAT(refusal([](CompileRequest &r) { r.goal.busDevices = 0; }),
              HasSubstr("goal.bus_devices = 0: expected 1 to 64"));
  EXPECT_THAT(refusal([](CompileRequest &r) { r.policy.placements = 65; }),
              HasSubstr("policy.placements = 65: expected"));
  for (const char *policy : {"select-n", "headrace", "flexgen", "flexgen-nobus"})
    EXPECT_THAT(refusal([&](CompileRequest &r) { r.policy.name = policy; }),
                HasSubstr("expected goal.ttft, goal.tpot or goal.slo_factor beside it"));
  EXPECT_THAT(refusal([](CompileRequest &r) { r.policy.name = "deepspeed", r.policy.interval = 2; }),
              HasSubstr("expected \"interval\""));
}

} // namespace
} // namespace headrace::compiler
