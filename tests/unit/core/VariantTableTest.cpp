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
