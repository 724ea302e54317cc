// SPDX-License-Identifier: Apache-2.0
//
// Thousands of plans that break a rule, each refused for a rule that an independent oracle lists too.
#include <gtest/gtest.h>

#include <map>

#include "runtime/base/EnumCount.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanVerifier.h"
#include "tests/support/ShuffleBuffers.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/Mutations.h"
#include "tests/unit/plan/Oracle.h"

namespace headrace::plan {
namespace {

std::string names(const std::set<Rule> &rules) {
  std::string out;
  for (const Rule rule : rules)
    out += std::string(out.empty() ? "" : ", ") + ruleName(rule);
  return out.empty() ? "none" : out;
}

std::vector<test::NamedOptions> allPlans() {
  std::vector<test::NamedOptions> out = test::variedPlans(), split = test::splitPlans();
  out.insert(out.end(), split.begin(), split.end());
  return out;
}
std::vector<test::Mutation> allMutations() {
  std::vector<test::Mutation> out = test::mutations();
  out.insert(out.end(), test::splitMutations().begin(), test::splitMutations().end());
  return out;
}

TEST(PlanMutation, EachBrokenPlanIsRefusedForARuleThatTheOracleLists) {
  constexpr int kBroken = 10000;
  const std::vector<test::NamedOptions> options = allPlans();
  const std::vector<test::Mutation> mutations = allMutations();
  std::vector<Plan> plans;
  for (const test::NamedOptions &named : options) {
    // Every second one with its buffers in another order, and some that no step uses between them.
    Plan plan = test::makePlan(named.options);
    plans.push_back(plans.size() % 2 == 0 ? std::move(plan) : test::withShuffledBuffers(std::move(plan), plans.size()));
    ASSERT_EQ(names(test::brokenRules(plans.back())), "none") << named.name;
  }
  test::Random random(20240607);
  std::map<Rule, int> refusals;      // by rule, of those the verifier names
  std::map<std::string, int> broken; // by mutation
  int refused = 0, harmless = 0, same = 0;
  for (size_t turn = 0; refused < kBroken; ++turn) {
    const test::Mutation &mutation = mutations[turn % mutations.size()];
    const size_t which = random() % plans.size();
    Plan plan = plans[which];
    if (!mutation.apply(plan, random))
      continue;
    const std::set<Rule> expected = test::brokenRules(plan);
    const std::vector<Violation> violations = findViolations(plan, 1000);
    std::set<Rule> found;
    for (const Violation &violation : violations)
      found.insert(violation.rule);
    const auto context = [&] {
      return mutation.name + " in \"" + options[which].name + "\", turn " + std::to_string(turn) + ": oracle " +
             names(expected) + ", verifier " + names(found) +
             (violations.empty() ? "" : ", first: " + violations.front().message);
    };
    ASSERT_EQ(found.empty(), expected.empty()) << context();
    ASSERT_TRUE(std::includes(expected.begin(), expected.end(), found.begin(), found.end())) << context();
    if (expected.empty()) {
      ++harmless;
      continue;
    }
    ++refused;
    ++broken[mutation.name];
    same += found == expected || (expected.contains(Rule::RedundantEdge) && found.size() + 1 == expected.size());
    for (const Rule rule : found)
      ++refusals[rule];
  }
  // Every mutation broke plans, every rule was broken, and the two lists are mostly the same, not merely compatible.
  for (const test::Mutation &mutation : mutations)
    EXPECT_GE(broken[mutation.name], 20) << mutation.name;
  for (int rule = 0; rule < model::enumCount<Rule>(); ++rule)
    EXPECT_GE(refusals[static_cast<Rule>(rule)], 20) << ruleName(static_cast<Rule>(rule));
  EXPECT_GE(same, kBroken * 95 / 100);
  RecordProperty("harmless", harmless);
  RecordProperty("same", same);
}

TEST(PlanMutation, LargestLiveBytesIsWhatBruteForceCounts) {
  for (const test::NamedOptions &named : allPlans()) {
    const Plan plan = test::makePlan(named.options);
    for (uint32_t i = 0; i < plan.schedules.size(); ++i)
      EXPECT_EQ(largestLiveBytes(plan, i), test::liveBytesByBruteForce(plan, i))
          << named.name << ", schedule " << plan.schedules[i].name;
  }
}

} // namespace
} // namespace headrace::plan
