// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/HomesTogether.h"

#include <algorithm>

#include "passes/algorithms/PackHomes.h"

namespace headrace::compiler {

HomesTogether placeTogether(const std::vector<DeviceHomes> &placements) {
  std::vector<uint64_t> below;
  std::vector<algorithms::HomeUnit> units;
  for (size_t p = 0; p < placements.size(); ++p) {
    below.push_back(placements[p].arenaBytes);
    for (const auto &[unit, bytes] : placements[p].units) {
      below.back() -= bytes; // homes are the end of the arena
      units.resize(std::max(units.size(), unit + 1));
      units[unit].bytes = bytes;
      units[unit].placement.resize(placements.size());
      units[unit].placement[p] = true;
    }
  }
  for (algorithms::HomeUnit &unit : units)
    unit.placement.resize(placements.size());
  HomesTogether together;
  together.address = algorithms::packHomes(below, units);
  for (size_t p = 0; p < placements.size(); ++p) {
    uint64_t end = below[p];
    for (const auto &[unit, bytes] : placements[p].units)
      end = std::max(end, together.address[unit] + bytes);
    together.arenaBytes.push_back(end);
    together.largest = std::max(together.largest, end);
  }
  return together;
}

} // namespace headrace::compiler
