// SPDX-License-Identifier: Apache-2.0
//
// The oracle alone, on plans with caches that are split.
#include "tests/unit/plan/Oracle.h"

#include <gtest/gtest.h>

#include "runtime/model/ModelSpec.h"
#include "tests/support/ShuffleBuffers.h"
#include "tests/unit/plan/MakePlan.h"

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

} // namespace
} // namespace headrace::plan
