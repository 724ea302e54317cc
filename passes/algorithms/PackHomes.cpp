// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/PackHomes.h"

#include <algorithm>
#include <numeric>

namespace headrace::algorithms {
namespace {

bool meet(const std::vector<bool> &a, const std::vector<bool> &b) {
  for (size_t p = 0; p < a.size(); ++p)
    if (a[p] && b[p])
      return true;
  return false;
}

} // namespace

std::vector<uint64_t> packHomes(absl::Span<const uint64_t> below, absl::Span<const HomeUnit> units) {
  const auto placements = [&](uint32_t unit) {
    return std::count(units[unit].placement.begin(), units[unit].placement.end(), true);
  };
  std::vector<uint32_t> order(units.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return placements(a) < placements(b); });

  std::vector<uint64_t> addresses(units.size(), 0);
  std::vector<uint32_t> placed; // by address
  for (const uint32_t unit : order) {
    if (placements(unit) == 0)
      continue;
    uint64_t address = 0;
    for (size_t p = 0; p < below.size(); ++p)
      if (units[unit].placement[p])
        address = std::max(address, below[p]);
    // The first gap between those that must keep apart from it.
    for (const uint32_t other : placed) {
      if (!meet(units[unit].placement, units[other].placement) || addresses[other] + units[other].bytes <= address)
        continue;
      if (addresses[other] >= address + units[unit].bytes)
        break;
      address = addresses[other] + units[other].bytes;
    }
    addresses[unit] = address;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), unit,
                                   [&](uint32_t a, uint32_t b) { return addresses[a] < addresses[b]; }),
                  unit);
  }
  return addresses;
}

} // namespace headrace::algorithms
