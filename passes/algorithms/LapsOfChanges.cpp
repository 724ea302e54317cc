// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/LapsOfChanges.h"

#include <algorithm>

namespace headrace::algorithms {

const LapsOfChanges::Laps &LapsOfChanges::lapsOf(uint64_t capacity) {
  for (const Laps &known : known_)
    if (known.capacity == capacity)
      return known;
  const size_t units = units_.size();
  Laps &laps = known_.emplace_back();
  laps.capacity = capacity;
  laps.filled.assign(units + 1, 0);
  laps.before.assign(units + 1, 1);
  laps.from.assign(units + 1, 0);
  for (size_t at = 0; at < units; ++at) {
    const uint64_t size = ringBytes_[units_[at]];
    const bool fits = laps.filled[at] + size <= capacity;
    laps.filled[at + 1] = fits ? laps.filled[at] + size : size;
    laps.before[at + 1] = size > capacity ? kNever : std::min(kNever, laps.before[at] + (fits ? 0 : 1));
  }
  uint64_t lap = 0; // bytes of [at, end)
  for (size_t at = units, end = units; at-- > 0;) {
    for (lap += ringBytes_[units_[at]]; lap > capacity; --end)
      lap -= ringBytes_[units_[end - 1]];
    laps.from[at] = end == at ? kNever : std::min(kNever, 1 + laps.from[end]);
  }
  return laps;
}

size_t LapsOfChanges::least(uint32_t out, uint32_t in, uint64_t capacity) {
  const Laps &known = lapsOf(capacity);
  const auto first =
      static_cast<size_t>(std::lower_bound(units_.begin(), units_.end(), std::min(out, in)) - units_.begin());
  uint64_t lap = known.filled[first];
  size_t laps = known.before[first];
  const auto put = [&](uint32_t unit) { // whether a lap begins with it
    const uint64_t size = ringBytes_[unit];
    if (size > capacity)
      laps = kNever;
    const bool fits = lap + size <= capacity;
    lap = fits ? lap + size : size;
    laps += fits ? 0 : 1;
    return !fits;
  };
  bool isIn = in == kNone, isOut = out == kNone;
  for (size_t at = first; laps < kNever; ++at) {
    if (!isIn && (at == units_.size() || in < units_[at])) {
      put(in);
      isIn = true;
    }
    if (at == units_.size())
      break;
    if (units_[at] == out)
      isOut = true;
    else if (put(units_[at]) && isIn && isOut)
      return laps - 1 + known.from[at];
  }
  return laps;
}

} // namespace headrace::algorithms
