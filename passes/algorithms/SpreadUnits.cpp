// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/SpreadUnits.h"

#include <algorithm>

namespace headrace::algorithms {

void forEachCounts(const std::vector<UnitKind> &kinds, size_t steps, uint64_t linkNs,
                   const std::function<void(const KindCounts &)> &visit) {
  for (size_t filled = 0; filled < kinds.size(); ++filled) {
    KindCounts digits(kinds.size(), 0), counts(kinds.size(), 0);
    for (;;) {
      uint64_t link = 0;
      for (size_t kind = 0; kind < kinds.size(); ++kind) {
        counts[kind] = kind == filled ? 0 : digits[kind] * kinds[kind].units.size() / steps;
        link += counts[kind] * kinds[kind].copyNs;
      }
      if (link <= linkNs) {
        const uint64_t copy = std::max<uint64_t>(1, kinds[filled].copyNs);
        const size_t most = std::min<uint64_t>(kinds[filled].units.size(), (linkNs - link) / copy);
        for (const size_t less : {size_t{0}, size_t{1}})
          if (less <= most) {
            counts[filled] = most - less;
            visit(counts);
          }
      }
      size_t kind = 0; // the next combination, as a number of digits 0 to `steps`
      for (; kind < kinds.size(); ++kind) {
        if (kind == filled)
          continue;
        if (++digits[kind] <= steps)
          break;
        digits[kind] = 0;
      }
      if (kind == kinds.size())
        break;
    }
  }
}

std::vector<uint32_t> spreadUnits(const std::vector<UnitKind> &kinds, const KindCounts &counts, size_t shift) {
  size_t most = 0; // units have smaller numbers
  for (const UnitKind &kind : kinds)
    for (const uint32_t unit : kind.units)
      most = std::max<size_t>(most, unit + 1);
  std::vector<char> taken(most, 0);
  size_t count = 0;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    const size_t all = kinds[kind].units.size();
    // Of the first n as many are taken as a line of slope count / all says, shifted up by phase / 8: in eighths of a
    // unit and parts of `all`, how far it is above the last whole number.
    size_t above = kind * shift % 8 * all;
    for (const uint32_t unit : kinds[kind].units)
      if (above += 8 * counts[kind]; above >= 8 * all) {
        above -= 8 * all;
        taken[unit] = 1;
        ++count;
      }
  }
  std::vector<uint32_t> units;
  units.reserve(count);
  for (uint32_t unit = 0; unit < most; ++unit)
    if (taken[unit])
      units.push_back(unit);
  return units;
}

} // namespace headrace::algorithms
