// SPDX-License-Identifier: Apache-2.0
//
// Small linear programmes, solved by their vertices: where as many constraints as there are variables hold with
// equality. For n variables and m constraints that is C(m, n) systems of n equations: of a handful of variables.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace headrace::cost {

// sum of coefficients x variable <= bound.
struct LinearConstraint {
  std::vector<double> coefficients;
  double bound = 0;
};

struct LinearProgram {
  std::vector<double> objective; // to be least
  std::vector<LinearConstraint> constraints;
};

struct LinearSolution {
  std::vector<double> variables;
  double value = 0;
};

// The vertex with the least objective; of vertices equal within 1e-12 of it the first in the order in which constraints
// are chosen, the last of them changing fastest. A constraint counts as met within 1e-11 of its own size. The minimum
// must be at a vertex: the caller bounds every variable from the side that the objective pulls to.
// kInvalidArgument: no variables, another number of coefficients, fewer constraints than variables.
// kResourceExhausted: no vertex meets all constraints.
absl::StatusOr<LinearSolution> solveByVertices(const LinearProgram &program);

} // namespace headrace::cost
