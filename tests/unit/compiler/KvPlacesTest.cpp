// SPDX-License-Identifier: Apache-2.0
//
// Tails of caches that cycle through places, as asked for: what the plan has, what its reason says, and what is
// refused.
//
// Six layers of tinyLlama at batch 2 and context 512 have 65 blocks of 24 KiB (SplitCachesTest.cpp); 10 of them stay,
// so a tail is 55 x 4 KiB = 220 KiB. In 5 places one layer is away at a time: 6 x 1 / 4 = 1.5 tails an iteration, a
// cycle of 4 with 6 moves.
#include <algorithm>
#include <chrono>
#include <set>
#include <string>

#include "compiler/Compile.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/plan/value/CacheMap.h"
#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLayers = 6, kResident = 10, kBlocks = 65;
constexpr uint64_t kKiB = 1024, kBlock = 24 * kKiB; // of all layers

CompileRequest longContexts(int64_t layers, int64_t places) {
  CompileRequest r = request(tinyLlama(layers));
  r.goal.context = 512;
  // The blocks that stay, and places for the others of a layer.
  r.goal.kvDeviceMemory = static_cast<uint64_t>(kResident * layers + (kBlocks - kResident) * places) * 4 * kKiB;
  r.buckets = {.newTokens = {1, 2, 8}, .sequences = {1, 2}, .contexts = {256, 512}};
  r.policy.none = true;
  r.policy.kvPlaces = places;
  r.policy.kvWriteBack = model::KvWriteBack::Mirror;
  return r;
}

TEST(KvPlaces, APlanHasAScheduleOfEachClassForEachPhase) {
  const auto plan = compile(longContexts(kLayers, 5));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->policy.kvPlaces, 5);
  EXPECT_EQ(plan->placements[0].slots.size(), 5u);
  for (const plan::IterationClass iterationClass : {plan::IterationClass::Decode, plan::IterationClass::Mixed}) {
    std::set<uint32_t> phases;
    uint64_t bytes = 0;
    for (const plan::Schedule &schedule : plan->schedules)
      if (schedule.iterationClass == iterationClass && schedule.period == 4) {
        phases.insert(schedule.phase);
        bytes += plan::linkBytes(schedule).h2d;
        EXPECT_THAT(schedule.name, HasSubstr(", phase " + std::to_string(schedule.phase) + " of 4"));
      }
    EXPECT_EQ(phases, (std::set<uint32_t>{0, 1, 2, 3}));
    EXPECT_EQ(bytes, 6 * (kBlocks - kResident) * 4 * kKiB);
  }
  // Classes may alternate: they share the states.
  for (const plan::Schedule &a : plan->schedules)
    for (const plan::Schedule &b : plan->schedules)
      if (a.period == 4 && b.period == 4 && a.phase == b.phase) {
        EXPECT_EQ(a.entryState, b.entryState);
        EXPECT_EQ(a.exitState, b.exitState);
      }
  // 330 KiB in the mean: 1.5 x 220.
  EXPECT_THAT(plan->reason, HasSubstr("Tails of 6 layers cycle through 5 places in 4 iterations: 330.00 KiB "
                                      "brought an iteration in the mean, "));
}

TEST(KvPlaces, ACycleOfOneIsNoneToThePlan) {
  const auto plan = compile(longContexts(kLayers, 4)); // 6 x 2 / 4 = 3 tails an iteration
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const plan::Schedule &schedule : plan->schedules)
    EXPECT_EQ(schedule.period, 1u);
  EXPECT_THAT(plan->reason, HasSubstr("cycle through 4 places in 1 iteration: 660.00 KiB brought an iteration"));
}

// Variants by bucket, then blocks, then phase.
TEST(KvPlaces, VariantsOfACycleStandOneBehindTheOther) {
  const auto plan = compile(longContexts(kLayers, 5));
  ASSERT_TRUE(plan.ok()) << plan.status();
  int cycles = 0;
  for (size_t v = 0; v < plan->variants.size(); ++v) {
    const plan::Schedule &schedule = plan->schedules[plan->variants[v].schedule];
    if (schedule.period == 1 || schedule.phase != 0)
      continue;
    ++cycles;
    for (uint32_t phase = 1; phase < schedule.period; ++phase) {
      ASSERT_LT(v + phase, plan->variants.size());
      const plan::Variant &other = plan->variants[v + phase];
      EXPECT_EQ(plan->schedules[other.schedule].phase, phase);
      EXPECT_EQ(other.context, plan->variants[v].context);
      EXPECT_EQ(other.sequences, plan->variants[v].sequences);
      EXPECT_EQ(other.newTokens, plan->variants[v].newTokens);
    }
  }
  EXPECT_GE(cycles, 4);
}

// All that is dirty has a way home.
TEST(KvPlaces, WhatIsCarriedDirtyHasAFlush) {
  CompileRequest r = longContexts(kLayers, 5);
  r.policy.kvWriteBack = model::KvWriteBack::All;
  const auto plan = compile(r);
  ASSERT_TRUE(plan.ok()) << plan.status();
  int dirty = 0;
  for (const plan::Schedule &schedule : plan->schedules) {
    const plan::State &exit = plan->states[schedule.exitState];
    if (schedule.iterationClass == plan::IterationClass::Transition ||
        std::none_of(exit.contents.begin(), exit.contents.end(), [](const plan::Content &c) { return c.dirty; }))
      continue;
    ++dirty;
    EXPECT_TRUE(std::any_of(plan->transitions.begin(), plan->transitions.end(), [&](const plan::Transition &t) {
      return t.fromState == schedule.exitState && t.toState == 0 &&
             plan::linkBytes(plan->schedules[t.schedule]).d2h > 0;
    }));
  }
  EXPECT_EQ(dirty, 8); // 4 phases of 2 classes
}

// What weights, places and the rest leave is filled with blocks. With 34 blocks of all six layers too few, 65 - R
// blocks of 6 - P layers make up for 34 of 6: with two places R is at most 14, four leave no room for a block (2 x 64
// is less than 204), so weights are away.
TEST(KvPlaces, BlocksFillWhatPlacesLeave) {
  CompileRequest r = longContexts(kLayers, 2);
  r.policy.none = false;
  r.goal.kvDeviceMemory.reset();
  r.policy.kvPlaces.reset();
  const auto whole = compile(r);
  ASSERT_TRUE(whole.ok()) << whole.status();
  r.goal.deviceMemory = whole->arenaBytes - 34 * kBlock;
  for (const int64_t places : {2, 4}) {
    r.policy.kvPlaces = places;
    const auto plan = compile(r);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_LE(plan->arenaBytes, *r.goal.deviceMemory);
    const uint64_t weightsAway = plan::weightBytesByHome(*plan, 0).host;
    if (places == 2) {
      EXPECT_EQ(weightsAway, 0u);
      EXPECT_EQ(plan->placements[0].slots.size(), 2u);
      EXPECT_EQ(plan::CacheMap(*plan, plan->placements[0]).resident(), 14);
    } else {
      EXPECT_GT(weightsAway, 0u);
      EXPECT_GT(plan->placements[0].slots.size(), 4u);
    }
  }
}

TEST(KvPlaces, AnObjectiveIsHeldAgainstTheSlowestPhase) {
  CompileRequest r = longContexts(kLayers, 5);
  r.policy.none = false;
  r.policy.name = "headrace";
  const auto unbound = compile([&] {
    CompileRequest one = r;
    one.goal.tpot = std::chrono::seconds(1);
    return one;
  }());
  ASSERT_TRUE(unbound.ok()) << unbound.status();
  uint64_t slowest = 0, fastest = ~uint64_t{0};
  for (const plan::Variant &v : unbound->variants) {
    const plan::Schedule &schedule = unbound->schedules[v.schedule];
    if (schedule.period == 1 || schedule.iterationClass != plan::IterationClass::Decode || v.sequences != 2 ||
        v.context != 512)
      continue;
    slowest = std::max(slowest, v.predictedNs);
    fastest = std::min(fastest, v.predictedNs);
  }
  ASSERT_LT(fastest, slowest); // a phase with two moves, and one with one
  for (const plan::BucketChoice &choice : unbound->choices) {
    const plan::Variant &v = unbound->variants[choice.variant];
    for (const plan::Variant &other : unbound->variants)
      if (other.newTokens == v.newTokens && other.sequences == v.sequences && other.context == v.context &&
          unbound->schedules[other.schedule].kvBlocks == 0) {
        EXPECT_LE(other.predictedNs, v.predictedNs);
      }
  }
}

TEST(KvPlaces, PlacesThatNothingCyclesThroughAreRefused) {
  const auto refused = [](CompileRequest r, const std::string &text) {
    const auto plan = compile(r);
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << plan.status();
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr(text));
  };
  refused(longContexts(kLayers, 1), "policy.kv_places = 1: expected at least 2, and less than the 6 layers of ");
  refused(longContexts(kLayers, 6), ": else nothing would move");
  // 9 layers in 5 places: 4 are away at a time, after 7 iterations the same ones; places have then gone on by 4 of 5.
  refused(longContexts(9, 5),
          "policy.kv_places = 5: expected 4 (a cycle of 28) or 6 (a cycle of 14): the 9 layers of ");
  refused(longContexts(9, 5), " in 5 places take a cycle of 35 iterations, a plan has at most 32");
  CompileRequest all = longContexts(kLayers, 5);
  all.goal.kvDeviceMemory.reset();
  refused(all, "policy.kv_places = 5: expected fewer KV blocks on the device than there are (65 a layer): all of them "
               "fit, and nothing cycles");
  CompileRequest kept = longContexts(kLayers, 5);
  kept.policy = {};
  kept.policy.name = "select-n";
  kept.policy.kvPlaces = 5;
  kept.goal.kvDeviceMemory.reset();
  kept.goal.tpot = std::chrono::seconds(1);
  refused(kept, "policy.kv_places = 5 beside policy.name = \"select-n\": expected policy interval, ");
}

} // namespace
} // namespace headrace::compiler
