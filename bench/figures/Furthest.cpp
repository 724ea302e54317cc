// SPDX-License-Identifier: Apache-2.0
#include "bench/figures/Furthest.h"

#include <algorithm>
#include <iterator>

namespace headrace::bench {

std::vector<Far> furthest(const Json &figures, size_t least, double target) {
  std::vector<Far> all;
  for (const Json &figure : figures)
    if (figure.contains("model") && figure.contains("cell") && figure.contains("placement") &&
        figure.contains("sequences") && figure.contains("ratio"))
      all.push_back({figure["model"], figure["cell"], figure["placement"], figure["sequences"], figure["ratio"]});
  std::stable_sort(all.begin(), all.end(), [](const Far &a, const Far &b) { return a.ratio > b.ratio; });
  const auto within = std::find_if(all.begin(), all.end(), [&](const Far &one) { return one.ratio <= target; });
  all.resize(std::min(all.size(), std::max(least, static_cast<size_t>(std::distance(all.begin(), within)))));
  // Stable: a model's stay in their order, models in that of their first.
  for (auto first = all.begin(); first != all.end();)
    first =
        std::stable_partition(first, all.end(), [model = first->model](const Far &one) { return one.model == model; });
  return all;
}

} // namespace headrace::bench
