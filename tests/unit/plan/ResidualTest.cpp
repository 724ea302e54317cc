// SPDX-License-Identifier: Apache-2.0
//
// Residual streams that leave the device between layers.
#include <gtest/gtest.h>

#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanVerifier.h"
#include "tests/support/ShuffleBuffers.h"
#include "tests/unit/plan/BrokenPlan.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/Oracle.h"

namespace headrace::plan {
namespace {

TEST(Residuals, PlansInWhichTheyLeaveAreAccepted) {
  std::vector<test::NamedOptions> plans = test::residualPlans();
  for (uint64_t seed = 0; seed < 40; ++seed)
    plans.push_back(test::randomResidualPlan(seed));
  for (const test::NamedOptions &named : plans) {
    const Plan plan = test::makePlan(named.options);
    test::expectAccepted(plan, named.name);
    test::expectAccepted(test::withShuffledBuffers(plan, 1), named.name + ", shuffled");
    EXPECT_TRUE(test::brokenRules(plan).empty()) << named.name;
    for (uint32_t i = 0; i < plan.schedules.size(); ++i)
      EXPECT_EQ(largestLiveBytes(plan, i), test::liveBytesByBruteForce(plan, i))
          << named.name << ", schedule " << plan.schedules[i].name;
  }
}

} // namespace
} // namespace headrace::plan
