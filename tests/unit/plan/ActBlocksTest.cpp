// SPDX-License-Identifier: Apache-2.0
//
// Activation blocks (HybridServe): what the verifier accepts, and one plan wrong in one way at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/PlanStructure.h"
#include "runtime/plan/PlanVerifier.h"
#include "tests/support/LongRun.h"
#include "tests/support/ShuffleBuffers.h"
#include "tests/unit/plan/BrokenPlan.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/Oracle.h"
#include "tests/unit/plan/PlanText.h"

namespace headrace::plan {
namespace {

using kernels::Op;
using test::Broken;

TEST(ActBlocks, PlansThatHaveThemAreAccepted) {
  std::vector<test::NamedOptions> plans = test::actPlans();
  for (int seed = 0; seed < casesOf(20, 400); ++seed)
    plans.push_back(test::randomActPlan(seed));
  std::set<std::string> parts;
  for (const test::NamedOptions &named : plans) {
    const Plan plan = test::makePlan(named.options);
    test::expectAccepted(plan, named.name);
    const Plan shuffled = test::withShuffledBuffers(plan, 1);
    test::expectAccepted(shuffled, named.name + ", shuffled");
    for (const Plan &p : {plan, shuffled}) {
      const absl::StatusOr<Plan> back = parse(test::bytesOf(serialize(p)), "a.plan");
      ASSERT_TRUE(back.ok()) << named.name << ": " << back.status();
      EXPECT_EQ(test::textOf(*back), test::textOf(p)) << named.name;
      EXPECT_TRUE(test::brokenRules(p).empty()) << named.name;
    }
    for (uint32_t i = 0; i < plan.schedules.size(); ++i)
      EXPECT_EQ(largestLiveBytes(plan, i), test::liveBytesByBruteForce(plan, i))
          << named.name << ", schedule " << plan.schedules[i].name;
    parts.merge(test::partsOfActs(plan));
  }
  EXPECT_EQ(parts.size(), 18u);
}

} // namespace
} // namespace headrace::plan
