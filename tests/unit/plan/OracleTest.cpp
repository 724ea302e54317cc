// SPDX-License-Identifier: Apache-2.0
//
// The oracle alone, on plans with caches that are split.
#include "tests/unit/plan/Oracle.h"

#include <gtest/gtest.h>

#include <map>

#include "runtime/model/ModelSpec.h"
#include "tests/support/ShuffleBuffers.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/Mutations.h"

namespace headrace::plan {
namespace {

std::string names(const std::set<Rule> &rules) {
  std::string out;
  for (const Rule rule : rules)
    out += std::string(out.empty() ? "" : ", ") + ruleName(rule);
  return out.empty() ? "none" : out;
}

TEST(PlanOracle, FindsNothingWrongInPlansWhoseCachesAreSplit) {
  for (const test::NamedOptions &named : test::splitPlans()) {
    const Plan plan = test::makePlan(named.options);
    EXPECT_EQ(names(test::brokenRules(plan)), "none") << named.name;
    EXPECT_EQ(names(test::brokenRules(test::withShuffledBuffers(plan, 1))), "none") << named.name << ", shuffled";
  }
}

// Both kinds of mutations, each in plans in which it can be made, until it has broken 20.
TEST(PlanOracle, FindsEachMutationOfThem) {
  constexpr int kBroken = 20, kTurns = 4000;
  std::vector<Plan> plans;
  for (const test::NamedOptions &named : test::splitPlans())
    plans.push_back(test::makePlan(named.options));
  std::vector<test::Mutation> mutations = test::splitMutations();
  mutations.insert(mutations.end(), test::mutations().begin(), test::mutations().end());
  test::Random random(20261123);
  std::map<std::string, std::set<std::set<Rule>>> found; // by mutation
  for (const test::Mutation &mutation : mutations) {
    int broken = 0;
    for (int turn = 0; turn < kTurns && broken < kBroken; ++turn) {
      Plan plan = plans[random() % plans.size()];
      if (!mutation.apply(plan, random))
        continue;
      const std::set<Rule> rules = test::brokenRules(plan);
      broken += rules.empty() ? 0 : 1;
      found[mutation.name].insert(rules);
    }
    EXPECT_EQ(broken, kBroken) << mutation.name;
  }
  // What nothing else gives away.
  const auto alone = [&](const std::string &name, Rule rule) {
    EXPECT_TRUE(found[name].contains({rule})) << name << ": never " << ruleName(rule) << " alone";
  };
  alone("read what is stale", Rule::StaleCopy);
  alone("carry what is stale", Rule::StaleCopy);
  alone("read a home while it is written", Rule::ReadBeforeReady);
  alone("read a home while it is written", Rule::OverwriteLive);
  alone("leave out a block of a transition", Rule::EntryExit);
  alone("put a home on another", Rule::HostRange);
}

} // namespace
} // namespace headrace::plan
