// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/LinearProgram.h"

#include <random>

#include <gtest/gtest.h>

namespace headrace::cost {
namespace {

// Most of 3 x + 2 y with x + y <= 4, x + 3 y <= 6, x <= 3: at x = 3, y = 1.
TEST(LinearProgram, IsSolvedAtAVertex) {
  const LinearProgram program{{-3, -2}, {{{1, 1}, 4}, {{1, 3}, 6}, {{1, 0}, 3}, {{-1, 0}, 0}, {{0, -1}, 0}}};
  const auto solution = solveByVertices(program);
  ASSERT_TRUE(solution.ok()) << solution.status();
  EXPECT_DOUBLE_EQ(solution->variables[0], 3);
  EXPECT_DOUBLE_EQ(solution->variables[1], 1);
  EXPECT_DOUBLE_EQ(solution->value, -11);
}

TEST(LinearProgram, TakesTheFirstOfEqualVertices) {
  // x + y is 1 all along an edge; x <= 1 and y >= 0 come before x >= 0 and y <= 1.
  const LinearProgram program{{1, 1}, {{{-1, -1}, -1}, {{1, 0}, 1}, {{0, -1}, 0}, {{-1, 0}, 0}, {{0, 1}, 1}}};
  const auto solution = solveByVertices(program);
  ASSERT_TRUE(solution.ok()) << solution.status();
  EXPECT_DOUBLE_EQ(solution->variables[0], 1);
  EXPECT_DOUBLE_EQ(solution->variables[1], 0);
}

TEST(LinearProgram, HasConstraintsOfAnySize) {
  // Bytes and shares side by side: 4e10 x <= 1e10.
  const auto solution = solveByVertices({{-1}, {{{4e10}, 1e10}, {{1}, 1}, {{-1}, 0}}});
  ASSERT_TRUE(solution.ok()) << solution.status();
  EXPECT_DOUBLE_EQ(solution->variables[0], 0.25);
}

TEST(LinearProgram, SaysWhereNothingMeetsIt) {
  EXPECT_EQ(solveByVertices({{1}, {{{1}, 1}, {{-1}, -2}}}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(LinearProgram, RefusesWhatIsNone) {
  EXPECT_EQ(solveByVertices({{}, {}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(solveByVertices({{1, 1}, {{{1, 0}, 1}}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(solveByVertices({{1}, {{{1, 2}, 1}}}).status().code(), absl::StatusCode::kInvalidArgument);
}

// No point of a grid that meets the constraints is better, and the solution meets them.
TEST(LinearProgram, IsAtLeastAsGoodAsAGrid) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> number(-1, 1);
  int solved = 0;
  for (int i = 0; solved < 200; ++i) {
    ASSERT_LT(i, 1000);
    LinearProgram program{{number(random), number(random)}, {}};
    for (int k = 0; k < 4; ++k)
      program.constraints.push_back({{number(random), number(random)}, number(random)});
    for (const auto &bound : {std::vector<double>{1, 0}, {-1, 0}, {0, 1}, {0, -1}})
      program.constraints.push_back({bound, 1});
    const auto meets = [&](double x, double y, double within) {
      for (const LinearConstraint &row : program.constraints)
        if (row.coefficients[0] * x + row.coefficients[1] * y > row.bound + within)
          return false;
      return true;
    };
    const auto solution = solveByVertices(program);
    if (solution.ok()) {
      ++solved;
      EXPECT_TRUE(meets(solution->variables[0], solution->variables[1], 1e-9)) << i;
    }
    for (double x = -1; x <= 1; x += 0.0625) {
      for (double y = -1; y <= 1; y += 0.0625) {
        if (!meets(x, y, 0))
          continue;
        ASSERT_TRUE(solution.ok()) << i << ": " << x << " " << y;
        EXPECT_GE(program.objective[0] * x + program.objective[1] * y, solution->value - 1e-9) << i;
      }
    }
  }
}

} // namespace
} // namespace headrace::cost
