// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/PlanVerifier.h"

#include <gtest/gtest.h>

#include "runtime/plan/PlanFile.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan {
namespace {

TEST(PlanVerifier, AcceptsPlansOfBothRules) {
  for (const test::NamedOptions &named : test::variedPlans()) {
    const Plan plan = test::makePlan(named.options);
    for (const Violation &v : findViolations(plan))
      ADD_FAILURE() << named.name << ": " << ruleName(v.rule) << " schedule " << v.schedule << " step " << v.step
                    << ": " << v.message;
  }
}

} // namespace
} // namespace headrace::plan
