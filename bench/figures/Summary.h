// SPDX-License-Identifier: Apache-2.0
//
// What the figures of iterations come to: each against what bounds it and what was predicted, then a line a model.
//
//   ratio             iteration / max(the same iteration with everything resident, bytes / bandwidth)
//   prediction error  iteration / predicted - 1
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/figures/Report.h"

namespace headrace::bench {

inline constexpr double kRatioTarget = 1.03;

struct Bounded {
  double ratio = 0, alone = 0, link = 0, error = 0;
  bool byLink = false;
};
Bounded bounded(double ms, double aloneMs, double linkMs, double predictedMs);

// Of figures with the fields model, cell, placement, ms, link ms, predicted ms: a line for each that has a resident one
// of its cell, then a line a model, over all that move bytes.
std::vector<std::pair<std::string, Json>> summarise(const Json &figures);

} // namespace headrace::bench
