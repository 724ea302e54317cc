// SPDX-License-Identifier: Apache-2.0
//
// A plan wrong in one way, and what the verifier says of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/plan/proof/PlanVerifier.h"

namespace headrace::plan::test {

struct Broken {
  const char *name;
  Rule rule;
  const char *message; // part of it
  std::function<void(Plan &)> make;
};

inline void expectRefused(Plan plan, const Broken &broken) {
  broken.make(plan);
  const std::vector<Violation> violations = findViolations(plan);
  ASSERT_FALSE(violations.empty()) << broken.name;
  EXPECT_STREQ(ruleName(violations[0].rule), ruleName(broken.rule)) << broken.name;
  EXPECT_NE(violations[0].message.find(broken.message), std::string::npos)
      << broken.name << "\n  expected " << broken.message << "\n  was " << violations[0].message;
}

inline void expectAccepted(const Plan &plan, const std::string &name) {
  for (const Violation &v : findViolations(plan))
    ADD_FAILURE() << name << ": " << ruleName(v.rule) << ", schedule " << v.schedule << ", step " << v.step << ": "
                  << v.message;
}

} // namespace headrace::plan::test
