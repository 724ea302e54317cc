// SPDX-License-Identifier: Apache-2.0
#include "runtime/cost/lm_offload/LinearProgram.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/base/Text.h"

namespace headrace::cost {
namespace {

double product(const std::vector<double> &a, const std::vector<double> &b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Every row divided by its largest coefficient, so that one tolerance is of all.
std::vector<LinearConstraint> scaled(std::vector<LinearConstraint> rows) {
  for (LinearConstraint &row : rows) {
    double largest = 0;
    for (const double c : row.coefficients)
      largest = std::max(largest, std::abs(c));
    if (largest == 0)
      continue;
    for (double &c : row.coefficients)
      c /= largest;
    row.bound /= largest;
  }
  return rows;
}

// Where the chosen constraints hold with equality; none where they do not meet in one point.
std::optional<std::vector<double>> crossing(const std::vector<LinearConstraint> &all,
                                            const std::vector<size_t> &chosen) {
  const size_t n = chosen.size();
  std::vector<std::vector<double>> rows;
  for (const size_t i : chosen) {
    rows.push_back(all[i].coefficients);
    rows.back().push_back(all[i].bound);
  }
  for (size_t column = 0; column < n; ++column) {
    const auto pivot =
        std::max_element(rows.begin() + static_cast<std::ptrdiff_t>(column), rows.end(),
                         [&](const auto &a, const auto &b) { return std::abs(a[column]) < std::abs(b[column]); });
    if (std::abs((*pivot)[column]) < 1e-12)
      return std::nullopt;
    std::swap(rows[column], *pivot);
    for (size_t row = 0; row < n; ++row) {
      if (row == column)
        continue;
      const double factor = rows[row][column] / rows[column][column];
      for (size_t k = column; factor != 0 && k <= n; ++k)
        rows[row][k] -= factor * rows[column][k];
    }
  }
  std::vector<double> point(n);
  for (size_t i = 0; i < n; ++i)
    point[i] = rows[i][n] / rows[i][i];
  return point;
}

bool meets(const std::vector<LinearConstraint> &rows, const std::vector<double> &point) {
  return std::all_of(rows.begin(), rows.end(), [&](const LinearConstraint &row) {
    return product(row.coefficients, point) <= row.bound + 1e-11 * std::max(1.0, std::abs(row.bound));
  });
}

// The next choice of some of `m` in ascending order; false after the last.
bool nextChoice(std::vector<size_t> &chosen, size_t m) {
  for (size_t i = chosen.size(); i-- > 0;) {
    if (chosen[i] + (chosen.size() - i) < m) {
      std::iota(chosen.begin() + static_cast<std::ptrdiff_t>(i), chosen.end(), chosen[i] + 1);
      return true;
    }
  }
  return false;
}

} // namespace

absl::StatusOr<LinearSolution> solveByVertices(const LinearProgram &program) {
  const size_t n = program.objective.size(), m = program.constraints.size();
  if (n == 0)
    return absl::InvalidArgumentError("a linear programme without variables");
  if (m < n)
    return absl::InvalidArgumentError(model::cat(m, " constraints of ", n, " variables: expected at least as many"));
  for (const LinearConstraint &row : program.constraints) {
    if (row.coefficients.size() != n)
      return absl::InvalidArgumentError(
          model::cat("a constraint of ", row.coefficients.size(), " coefficients: expected ", n));
  }
  const std::vector<LinearConstraint> rows = scaled(program.constraints);
  std::optional<LinearSolution> best;
  std::vector<size_t> chosen(n);
  std::iota(chosen.begin(), chosen.end(), size_t{0});
  do {
    std::optional<std::vector<double>> point = crossing(rows, chosen);
    if (!point || !meets(rows, *point))
      continue;
    const double value = product(program.objective, *point);
    if (!best || value < best->value - 1e-12 * std::abs(best->value))
      best = LinearSolution{*std::move(point), value};
  } while (nextChoice(chosen, m));
  if (!best)
    return absl::ResourceExhaustedError("no variables meet all constraints of the linear programme");
  return *best;
}

} // namespace headrace::cost
