// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/PickLayers.h"

namespace headrace::algorithms {

std::vector<int64_t> intervalLayers(int64_t layers, int64_t interval) {
  std::vector<int64_t> picked;
  for (int64_t group = 1; group <= layers / interval; ++group)
    picked.push_back(group * interval - 1);
  return picked;
}

std::vector<int64_t> spreadLayers(int64_t layers, int64_t count) {
  // Group g ends before layer floor((g + 1) * layers / count): the ends of a line of slope layers / count, so that any
  // two groups differ by at most one.
  std::vector<int64_t> picked;
  for (int64_t group = 0; group < count; ++group)
    picked.push_back((group + 1) * layers / count - 1);
  return picked;
}

std::vector<int32_t> evenLayers(int64_t layers, int64_t count) {
  std::vector<int32_t> picked;
  for (int64_t layer = 0; layer < layers; ++layer)
    if ((layer + 1) * count / layers > layer * count / layers)
      picked.push_back(static_cast<int32_t>(layer));
  return picked;
}

} // namespace headrace::algorithms
