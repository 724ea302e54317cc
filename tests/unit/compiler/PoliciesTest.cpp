// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/policies/Policies.h"

#include <set>

#include "tests/unit/compiler/Requests.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Policies, AreFoundByTheirName) {
  std::set<std::string_view> names;
  for (const Policy *policy : allPolicies()) {
    EXPECT_EQ(findPolicy(policy->name()), policy);
    EXPECT_FALSE(policy->summary().empty()) << policy->name();
    EXPECT_TRUE(names.insert(policy->name()).second) << policy->name();
    EXPECT_THAT(policyNames(), HasSubstr("\"" + std::string(policy->name()) + "\""));
  }
  EXPECT_EQ(findPolicy("auto"), nullptr);
  EXPECT_EQ(findPolicy("pie"), nullptr);
}

TEST(Policies, AnUnknownNameIsRefusedWithThoseThereAre) {
  model::Policy asked;
  asked.name = "pie";
  EXPECT_EQ(policyFor(asked, {}).status().message(),
            "policy.name = \"pie\": expected \"auto\", \"interval\", \"none\", \"deepspeed\", "
            "\"flexgen\", \"flexgen-nobus\", \"select-n\" or \"headrace\"");
}

TEST(Policies, AnObjectiveDecidesWhatAutoIs) {
  model::Goal goal;
  model::Policy asked;
  EXPECT_EQ((*policyFor(asked, goal))->name(), "interval");
  goal.tpotNs = 1;
  EXPECT_EQ((*policyFor(asked, goal))->name(), "headrace");
  asked.interval = 4; // stated: nothing to choose
  EXPECT_EQ((*policyFor(asked, goal))->name(), "interval");
  asked = {};
  asked.name = "deepspeed";
  EXPECT_EQ((*policyFor(asked, goal))->name(), "deepspeed");
}

TEST(Policies, RefuseWhatTheyCannotBeAskedFor) {
  const auto refusal = [](auto &&change) {
    CompileRequest r = request(tinyLlama(4));
    change(r);
    return std::string(compile(r).status().message());
  };
  for (const Policy *policy : allPolicies()) {
    SCOPED_TRACE(std::string(policy->name()));
    const std::string name = "policy.name = \"" + std::string(policy->name()) + "\": ";
    if (policy->traits().byObjective) {
      EXPECT_EQ(refusal([&](CompileRequest &r) { r.policy.name = std::string(policy->name()); }),
                name + "expected goal.ttft, goal.tpot or goal.slo_factor beside it: it chooses by latency");
    }
    if (policy->traits().statesPlacement)
      continue;
    const auto objective = [&](CompileRequest &r) {
      r.policy.name = std::string(policy->name());
      r.goal.sloFactor = 2;
    };
    EXPECT_EQ(refusal([&](CompileRequest &r) { objective(r), r.policy.interval = 2; }),
              name + "expected \"interval\" where policy.interval or policy.offload_layers state the placement");
    EXPECT_THAT(
        refusal([&](CompileRequest &r) { objective(r), r.policy.startRuleStated = true; }),
        HasSubstr("policy.start_rule = \"eager\": expected policy.name \"interval\" beside it, or no start_rule: "
                  "policy \"" +
                  std::string(policy->name()) + "\" has a rule of its own"));
  }
}

} // namespace
} // namespace headrace::compiler
