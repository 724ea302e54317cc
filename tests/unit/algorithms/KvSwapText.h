// SPDX-License-Identifier: Apache-2.0
//
// Pie's figures as text: what is where as each layer starts (Figures 4 and 5), and the mapping table (Figure 3).
//
//   #  the layer that computes     .  on the device     i  on its way in     o  on its way out     h  on the host
#pragma once

#include <string>

#include "passes/algorithms/ScheduleKvSwap.h"

namespace headrace::algorithms {

inline std::string padded(const std::string &text, size_t width) {
  return text.size() < width ? text + std::string(width - text.size(), ' ') : text;
}

inline std::string startText(const KvSwapCopy &copy) {
  const std::string layer = std::to_string(copy.layer), place = std::to_string(copy.place);
  return (copy.out ? layer + " out of place " + place : layer + " into place " + place) +
         (copy.onDemand ? " on demand" : "");
}

// A line for each layer that starts to compute from `from` until before `until`: what begins then, and what was waited.
inline std::string kvSwapLog(const KvSwapProblem &problem, int64_t from, int64_t until) {
  KvSwap swap(problem);
  const size_t width = std::to_string(problem.layers - 1).size() + 1;
  std::string text = padded("time", 8) + padded("layer", 7);
  for (int32_t layer = 0; layer < problem.layers; ++layer)
    text += padded(std::to_string(layer), width);
  text += "  swaps that begin\n";
  while (swap.now() < until) {
    const int64_t waited = swap.waited();
    const size_t copies = swap.copies().size();
    const int64_t visit = swap.visits();
    swap.compute();
    const int64_t start = swap.now() - problem.times.compute;
    if (start < from || start >= until)
      continue;
    std::string begun;
    for (size_t i = copies; i < swap.copies().size(); ++i)
      begun += (begun.empty() ? "" : ", ") + startText(swap.copies()[i]);
    if (const int64_t more = swap.waited() - waited; more > 0)
      begun += (begun.empty() ? "waited " : "; waited ") + std::to_string(more);
    text += padded(std::to_string(start), 8) + padded(std::to_string(visit % problem.layers), 7);
    // As it stood while the layer computed: what has ended since was under way.
    for (int32_t layer = 0; layer < problem.layers; ++layer) {
      const KvSwapRow &row = swap.table()[static_cast<size_t>(layer)];
      const bool since = row.changed > start;
      const char mark = layer == visit % problem.layers ? '#'
                        : row.state == KvState::Device  ? (since ? 'i' : '.')
                        : row.state == KvState::Host    ? (since ? 'o' : 'h')
                                                        : (row.state == KvState::SwappingIn ? 'i' : 'o');
      text += padded(std::string(1, mark), width);
    }
    text += begun.empty() ? "" : "  " + begun;
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

inline std::string kvSwapTable(const KvSwap &swap) {
  static constexpr const char *kStates[] = {"on the host", "swapping in", "on the device", "swapping out"};
  std::string text = "layer  host  place  state          since\n";
  for (size_t layer = 0; layer < swap.table().size(); ++layer) {
    const KvSwapRow &row = swap.table()[layer];
    text += padded(std::to_string(layer), 7) + padded(std::to_string(layer), 6) +
            padded(row.place < 0 ? "-" : std::to_string(row.place), 7) +
            padded(kStates[static_cast<size_t>(row.state)], 15) + std::to_string(row.changed) + "\n";
  }
  return text;
}

} // namespace headrace::algorithms
