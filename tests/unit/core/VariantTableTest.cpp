// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/VariantTable.h"

#include <tuple>

#include <gtest/gtest.h>

namespace headrace::core {
namespace {

using Config = TransitionPaths::Config;

// One placement, a slot that is entered with weight 0 (state 1, decode: 100 ns) or with weight 1 (state 2, prompts:
// 104 ns), each left as it was entered; 10 ns from one to the other.
plan::Plan twoStates() {
  plan::Plan plan;
  plan.buffers.resize(2);
  plan.placements.resize(1);
  plan.states = {{0, {}}, {0, {{0, 0, 256, 0}}}, {0, {{1, 0, 256, 0}}}};
  const auto schedule = [&](plan::IterationClass iterationClass, uint32_t entry, uint32_t exit) {
    plan::Schedule s;
    s.iterationClass = iterationClass;
    s.entryState = entry;
    s.exitState = exit;
    plan.schedules.push_back(s);
    return static_cast<uint32_t>(plan.schedules.size() - 1);
  };
  const uint32_t decode = schedule(plan::IterationClass::Decode, 1, 1),
                 mixed = schedule(plan::IterationClass::Mixed, 2, 2);
  plan.variants.push_back({8, 8, 64, 0, decode, {}, 100, 0, 0});
  plan.variants.push_back({32, 8, 64, 0, mixed, {}, 104, 0, 0});
  for (const auto &[from, to] : {std::pair(0U, 1U), {0U, 2U}, {1U, 2U}, {2U, 1U}})
    plan.transitions.push_back({from, to, schedule(plan::IterationClass::Transition, from, to), {}, 10});
  return plan;
}

class VariantTableTest : public testing::Test {
protected:
  VariantTable::Chosen choose(uint32_t state, uint64_t owedNs, const VariantTable::Bucket &bucket = {8, 8, 64}) const {
    return table.cheapest(0, bucket, paths, paths.config(0, state), owedNs);
  }
  const plan::Plan plan = twoStates();
  const TransitionPaths paths{plan};
  const VariantTable table{plan, paths, {true, true}};
};

TEST_F(VariantTableTest, TakesTheLeastTimeWithThePathToIt) {
  EXPECT_EQ(choose(1, 0).variant, 0U); // 100 against 104 + 10
  EXPECT_EQ(choose(2, 0).variant, 1U); // 100 + 10 against 104
  EXPECT_EQ(choose(2, 0).excessNs, 4U);
  EXPECT_EQ(choose(1, 0).excessNs, 0U);
  EXPECT_EQ(choose(1, 0, {20, 3, 64}).variant, 1U); // only the other holds several rows a sequence
  EXPECT_EQ(choose(1, 0, {33, 8, 64}).variant, plan::kNone);
}

TEST(VariantTable, OfEqualsTheFirstInThePlan) {
  plan::Plan plan = twoStates();
  plan.variants[1].predictedNs = 100; // as the other; from the empty state both are 10 ns away
  const TransitionPaths paths(plan);
  const VariantTable table(plan, paths, {true, true});
  EXPECT_EQ(table.cheapest(0, {8, 8, 64}, paths, paths.config(0, 0), 0).variant, 0U);
}

// Whatever it takes, and the path to it.
TEST(VariantTable, AttentionOnTheCpuGoesBeforeWhatTakesLess) {
  plan::Plan plan = twoStates();
  plan.variants[0].predictedNs = 1000; // against 104
  plan::Step step;
  step.lane = plan::Lane::Cpu;
  plan.schedules[plan.variants[0].schedule].steps.push_back(step);
  const TransitionPaths paths(plan);
  const VariantTable table(plan, paths, {true, true});
  for (const uint32_t state : {0U, 1U, 2U}) {
    const VariantTable::Chosen chosen = table.cheapest(0, {8, 8, 64}, paths, paths.config(0, state), 0);
    EXPECT_EQ(chosen.variant, 0U) << state;
    EXPECT_EQ(chosen.excessNs, 0U);
    EXPECT_EQ(table.cheapest(0, {20, 3, 64}, paths, paths.config(0, state), 0).variant, 1U); // prompts
  }
}

TEST_F(VariantTableTest, APathIsTakenOnceWhatWasLostWithoutItWouldHavePaidForIt) {
  // Iterations of 8 rows after prompts: 4 ns are lost by each that saves the 10 ns. After two of them 8 are owed, and
  // 100 + 10 - 8 is less than 104.
  uint64_t owed = 0;
  std::vector<uint32_t> variants;
  for (Config state = 2; variants.size() < 5;) {
    const VariantTable::Chosen chosen = choose(state, owed);
    variants.push_back(chosen.variant);
    if (chosen.variant == 0 && state == 2) {
      owed = 0;
      state = 1;
    } else {
      owed += chosen.excessNs;
    }
  }
  EXPECT_EQ(variants, (std::vector<uint32_t>{1, 1, 0, 0, 0}));
}

TEST_F(VariantTableTest, NoChoiceTakesLongerThanTheFastestWithItsPath) {
  for (const uint32_t state : {0U, 1U, 2U})
    for (uint64_t owed = 0; owed < 30; ++owed) {
      const VariantTable::Chosen chosen = choose(state, owed);
      const auto cost = [&](uint32_t variant) {
        const plan::Variant &v = plan.variants[variant];
        return v.predictedNs +
               paths.predictedNs(paths.config(0, state), paths.config(0, plan.schedules[v.schedule].entryState));
      };
      EXPECT_LE(cost(chosen.variant), cost(0)) << state << " " << owed;
    }
}

// A cycle of three phases for decode and one for prompts, entered with weights 0, 1 and 2 in the slot (states 1 to 3);
// 10 ns from the empty state to each.
//
//   phase     0       1       2        mean
//   decode    100 ns  130 ns  70 ns    100 ns
//   mixed     300     300     300      300
class Cycles : public testing::Test {
protected:
  static plan::Plan threePhases() {
    plan::Plan plan;
    plan.buffers.resize(3);
    plan.placements.resize(1);
    plan.states.resize(1);
    for (uint32_t phase = 0; phase < 3; ++phase)
      plan.states.push_back({0, {{phase, 0, 256, 0}}});
    for (const plan::IterationClass kind : {plan::IterationClass::Decode, plan::IterationClass::Mixed})
      for (uint32_t phase = 0; phase < 3; ++phase) {
        plan::Schedule s;
        s.iterationClass = kind;
        s.phase = phase, s.period = 3;
        s.entryState = 1 + phase, s.exitState = 1 + (phase + 1) % 3;
        plan.schedules.push_back(s);
      }
    constexpr uint64_t kDecodeNs[] = {100, 130, 70};
    for (uint32_t phase = 0; phase < 3; ++phase)
      plan.variants.push_back({8, 8, 64, 0, phase, {}, kDecodeNs[phase], 0, 0});
    for (uint32_t phase = 0; phase < 3; ++phase)
      plan.variants.push_back({32, 8, 64, 0, 3 + phase, {}, 300, 0, 0});
    for (uint32_t state = 1; state <= 3; ++state) {
      plan.transitions.push_back({0, state, static_cast<uint32_t>(plan.schedules.size()), {}, 10});
      plan::Schedule s;
      s.iterationClass = plan::IterationClass::Transition;
      s.exitState = state;
      plan.schedules.push_back(s);
    }
    return plan;
  }
  // Iterations of so many rows of 8 sequences from the empty state on, as Runtime counts what is owed.
  std::vector<uint32_t> run(const plan::Plan &plan, const std::vector<int64_t> &rows, std::vector<bool> built) const {
    const TransitionPaths paths(plan);
    const VariantTable table(plan, paths, built);
    std::vector<uint32_t> variants;
    uint64_t owed = 0;
    TransitionPaths::Config now = paths.config(0, 0);
    for (const int64_t tokens : rows) {
      const VariantTable::Chosen chosen = table.cheapest(0, {tokens, 8, 64}, paths, now, owed);
      variants.push_back(chosen.variant);
      if (chosen.variant == plan::kNone)
        break;
      const plan::Schedule &schedule = plan.schedules[plan.variants[chosen.variant].schedule];
      if (paths.predictedNs(now, paths.config(0, schedule.entryState)) > 0)
        owed = 0;
      owed += chosen.excessNs;
      now = paths.config(0, schedule.exitState);
    }
    return variants;
  }
  const std::vector<bool> all_ = std::vector<bool>(6, true);
};

TEST_F(Cycles, ASteadyRunGoesRound) {
  EXPECT_EQ(run(threePhases(), std::vector<int64_t>(9, 8), all_), (std::vector<uint32_t>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
}

TEST_F(Cycles, OtherBucketsAndClassesTakeItsPlaceInTheSamePhase) {
  EXPECT_EQ(run(threePhases(), {8, 20, 8, 8, 32, 32, 32, 8}, all_), (std::vector<uint32_t>{0, 4, 2, 0, 4, 5, 3, 1}));
}

// Phase 1 of decode was not built: prompts' stand in for it, 200 ns each time, and no path of 10 ns is taken for that.
TEST_F(Cycles, ItIsNotLeftForAFasterPhase) {
  EXPECT_EQ(run(threePhases(), std::vector<int64_t>(7, 8), {true, false, true, true, true, true}),
            (std::vector<uint32_t>{0, 4, 2, 0, 4, 2, 0}));
}

// Where the phase that is due has none that holds the size, another one does.
TEST_F(Cycles, ItIsLeftWhereAPhaseHoldsTooLittle) {
  EXPECT_EQ(run(threePhases(), {8, 20, 8}, {true, true, true, true, false, true}), (std::vector<uint32_t>{0, 3, 1}));
}

// Beside it a schedule from the empty state, 95 ns and so faster than the mean: from phase 0 on, 5 ns are lost by each
// iteration that goes round; what is dropped costs nothing, so it is left at once.
TEST_F(Cycles, ItIsLeftForWhatIsFasterThanItsMean) {
  plan::Plan plan = threePhases();
  plan.schedules.push_back({});
  plan.variants.push_back({8, 8, 64, 0, static_cast<uint32_t>(plan.schedules.size() - 1), {}, 95, 0, 0});
  std::vector<bool> built(7, true);
  EXPECT_EQ(run(plan, {8, 8, 8}, built), (std::vector<uint32_t>{6, 6, 6}));
  plan.variants[6].predictedNs = 111; // 100 + 10 with the path
  EXPECT_EQ(run(plan, {8, 8, 8, 8}, built), (std::vector<uint32_t>{0, 1, 2, 0}));
  plan.variants[6].predictedNs = 101; // phase 2 alone would be faster with its path, too
  EXPECT_EQ(run(plan, {8, 8, 8, 8}, built).front(), 6u);
}

// Phase 0 begins with nothing, as does a schedule that is of no cycle, and is faster where blocks below 3 are in use.
TEST_F(Cycles, WhatBeginsWithNothingMayBeOfItOrNot) {
  plan::Plan plan = threePhases();
  for (const uint32_t schedule : {0u, 3u})
    plan.schedules[schedule].entryState = plan.schedules[schedule + 2].exitState = 0;
  plan.schedules.push_back({});
  plan.schedules.back().kvBlocks = 3;
  plan.variants.push_back({8, 8, 64, 0, static_cast<uint32_t>(plan.schedules.size() - 1), {}, 60, 0, 0});
  const TransitionPaths paths(plan);
  const VariantTable table(plan, paths, std::vector<bool>(7, true));
  for (const uint32_t state : {0u, 2u, 3u}) { // what is dropped costs nothing
    EXPECT_EQ(table.cheapest(0, {8, 8, 64, 3}, paths, paths.config(0, state), 0).variant, 6u) << state;
    EXPECT_EQ(table.cheapest(0, {8, 8, 64, 4}, paths, paths.config(0, state), 0).variant, state == 0 ? 0 : state - 1);
  }
}

// R = 3 of 9 blocks: for each size a variant for anything in use, and a faster one, without copies of tails, where
// blocks 0 to 2 are all. The larger is the only one for 8 rows.
//
//   rows  blocks below 3  any
//   4     50 ns           80 ns
//   8     90 ns           100 ns
class NoTails : public testing::Test {
protected:
  static plan::Plan splitPlan() {
    plan::Plan plan;
    plan.kvBlocks = 9;
    plan.placements.resize(1);
    plan.placements[0].kvBlocks = 9;
    plan.states.resize(1);
    plan.schedules.resize(2);
    plan.schedules[0].kvBlocks = 3;
    for (const auto &[rows, schedule, ns] :
         {std::tuple(4, 0U, 50U), std::tuple(4, 1U, 80U), std::tuple(8, 0U, 90U), std::tuple(8, 1U, 100U)})
      plan.variants.push_back({rows, rows, 64, 0, schedule, {}, ns, 0, 0});
    return plan;
  }
  // Where blocks below `kvBlocks` are in use.
  uint32_t chosen(int64_t rows, int64_t kvBlocks) const {
    return table.cheapest(0, {rows, rows, 64, kvBlocks}, paths, paths.config(0, 0), 0).variant;
  }
  const plan::Plan plan = splitPlan();
  const TransitionPaths paths{plan};
  VariantTable table{plan, paths, {true, true, true, true}};
};

TEST_F(NoTails, RunsWhereNothingIsInUseAboveR) {
  EXPECT_EQ(chosen(4, 1), 0u); // nothing but the scratch block
  EXPECT_EQ(chosen(4, 3), 0u); // block 2 is the last on the device
  EXPECT_EQ(chosen(4, 4), 1u); // block 3 is not
  EXPECT_EQ(chosen(4, 9), 1u);
  EXPECT_EQ(chosen(8, 3), 2u);
  EXPECT_EQ(chosen(8, 4), 3u);
}

// One for more rows stands in for one that was not built, but none for less of KV than is in use.
TEST_F(NoTails, IsNoStandInForWhatIsInUse) {
  table = VariantTable(plan, paths, {true, false, true, true});
  EXPECT_EQ(chosen(4, 3), 0u);
  EXPECT_EQ(chosen(4, 4), 3u);
  table = VariantTable(plan, paths, {false, true, false, true});
  EXPECT_EQ(chosen(4, 1), 1u); // what may use everything holds what uses less
  table = VariantTable(plan, paths, {true, false, true, false});
  EXPECT_EQ(chosen(4, 4), plan::kNone);
}

} // namespace
} // namespace headrace::core
