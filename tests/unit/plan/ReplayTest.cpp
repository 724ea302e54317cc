// SPDX-License-Identifier: Apache-2.0
//
// What the oracle accepts keeps every row, launch after launch, whatever the launches' sizes.
#include "tests/unit/plan/Replay.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/Mutations.h"
#include "tests/unit/plan/Oracle.h"

namespace headrace::plan {
namespace {

bool isLong() { return std::getenv("HEADRACE_LONG") != nullptr; }

std::vector<test::NamedOptions> movingPlans(uint64_t seeds) {
  std::vector<test::NamedOptions> out = test::splitPlans(), back = test::writeBackPlans();
  out.insert(out.end(), back.begin(), back.end());
  for (uint64_t seed = 0; seed < seeds; ++seed)
    out.push_back(test::randomSplitPlan(seed));
  return out;
}

TEST(PlanReplay, KeepsEveryRow) {
  for (const test::NamedOptions &named : movingPlans(isLong() ? 400 : 40)) {
    const Plan plan = test::makePlan(named.options);
    for (uint64_t seed = 0; seed < 3; ++seed)
      ASSERT_EQ(test::replay(plan, seed, isLong() ? 200 : 40), "") << named.name << ", seed " << seed;
  }
}

// Mutations of what moves when: those that the oracle accepts keep every row as well, and many of the others do not.
TEST(PlanReplay, LosesRowsOnlyWhereTheOracleFindsAFault) {
  const int wanted = isLong() ? 4000 : 300;
  const std::set<Rule> seen = {Rule::StaleCopy, Rule::ReadBeforeReady, Rule::OverwriteLive};
  std::vector<Plan> plans;
  for (const test::NamedOptions &named : movingPlans(isLong() ? 100 : 10))
    plans.push_back(test::makePlan(named.options));
  std::vector<test::Mutation> mutations = test::writeBackMutations(), more = test::mutations();
  mutations.insert(mutations.end(), test::cycleMutations().begin(), test::cycleMutations().end());
  mutations.insert(mutations.end(), more.begin(), more.end());
  test::Random random(20261124);
  int harmless = 0, lost = 0, stale = 0;
  for (size_t turn = 0; harmless < wanted; ++turn) {
    Plan plan = plans[random() % plans.size()];
    const test::Mutation &mutation = mutations[turn % mutations.size()];
    if (!mutation.apply(plan, random))
      continue;
    const std::set<Rule> rules = test::brokenRules(plan);
    if (rules.empty()) {
      ASSERT_EQ(test::replay(plan, turn, 30), "") << mutation.name << ", turn " << turn;
      ++harmless;
    } else if (rules.size() == 1 && seen.contains(*rules.begin())) {
      ++stale;
      lost += test::replay(plan, turn, 30).empty() ? 0 : 1;
    }
  }
  EXPECT_GE(stale, wanted / 4);
  EXPECT_GE(lost, stale / 2);
  RecordProperty("stale", stale);
  RecordProperty("lost", lost);
}

} // namespace
} // namespace headrace::plan
