// SPDX-License-Identifier: Apache-2.0
//
// Memory first: how fast iterations can be when so much device memory is to be free.
#pragma once

#include <optional>

#include "passes/algorithms/SearchUnits.h"

namespace headrace::algorithms {

// The placement that frees at least `leastFreed` bytes with the smallest common factor on all SLOs: the fastest there
// is for so much memory, where SLOs are resident times. The factor is found by bisection between `low` and `high`, to a
// thousandth; none where not even `high` does.
struct FastestPlacement {
  double factor = 1;
  UnitPlacement placed;
  bool operator==(const FastestPlacement &) const = default;
};
std::optional<FastestPlacement> searchFastest(const UnitProblem &problem, uint64_t leastFreed, double low, double high);

} // namespace headrace::algorithms
