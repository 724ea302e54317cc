// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/AssignRing.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace headrace::algorithms {
namespace {

constexpr uint64_t roundUp(uint64_t bytes) { return (bytes + kRingAlign - 1) / kRingAlign * kRingAlign; }

// sums[i]: the bytes of the first i units, each rounded up.
std::vector<uint64_t> prefixSums(absl::Span<const uint64_t> unitBytes) {
  std::vector<uint64_t> sums(unitBytes.size() + 1, 0);
  for (size_t i = 0; i < unitBytes.size(); ++i)
    sums[i + 1] = sums[i] + roundUp(unitBytes[i]);
  return sums;
}

// The end of the longest run from `begin` on with at most `capacity` bytes.
size_t longestRun(const std::vector<uint64_t> &sums, size_t begin, uint64_t capacity) {
  const auto it =
      std::upper_bound(sums.begin() + static_cast<std::ptrdiff_t>(begin), sums.end(), sums[begin] + capacity);
  return static_cast<size_t>(it - sums.begin()) - 1;
}

// Runs filled one after another; more than `limit` of them are not counted. No unit is larger than `capacity`.
// `next`: the least capacity that would fill any of the runs counted further.
size_t runsWithin(const std::vector<uint64_t> &sums, uint64_t capacity, size_t limit, uint64_t *next = nullptr) {
  size_t runs = 0;
  uint64_t least = std::numeric_limits<uint64_t>::max();
  const uint64_t *end = sums.data() + sums.size();
  for (const uint64_t *at = sums.data() + 1; at != end && runs <= limit; ++runs) {
    const uint64_t begin = at[-1], most = begin + capacity;
    while (at != end && *at <= most)
      ++at;
    if (at != end)
      least = std::min(least, *at - begin);
  }
  if (next)
    *next = least;
  return runs;
}

uint64_t largestUnit(const std::vector<uint64_t> &sums) {
  uint64_t largest = 0;
  for (size_t i = 1; i < sums.size(); ++i)
    largest = std::max(largest, sums[i] - sums[i - 1]);
  return largest;
}

// `laps` runs of at most `capacity` bytes each, which is known to be possible, cut where even laps would be cut.
RingAssignment evenLaps(const std::vector<uint64_t> &sums, uint64_t capacity, size_t laps) {
  const size_t units = sums.size() - 1;
  // The earliest ends from which the laps that follow can hold the rest, and one unit at least is left for each.
  std::vector<size_t> earliest(laps);
  earliest[laps - 1] = units;
  for (size_t lap = laps - 1; lap-- > 0;) {
    const uint64_t end = sums[earliest[lap + 1]];
    const auto it = std::lower_bound(sums.begin(), sums.end(), end > capacity ? end - capacity : 0);
    earliest[lap] = std::max(static_cast<size_t>(it - sums.begin()), lap + 1);
  }
  RingAssignment ring;
  ring.offset.reserve(units);
  size_t begin = 0;
  for (size_t lap = 0; lap < laps; ++lap) {
    ring.lapBegin.push_back(begin);
    const size_t latest = std::min(longestRun(sums, begin, capacity), units - (laps - 1 - lap));
    // The cut nearest to an even one; of two as near the one behind. sum * (lap + 1) may pass 2^64: divided first.
    const uint64_t even = sums[units] / laps * (lap + 1) + sums[units] % laps * (lap + 1) / laps;
    size_t end = static_cast<size_t>(std::lower_bound(sums.begin(), sums.end(), even) - sums.begin());
    if (end > begin && end <= units && even - sums[end - 1] < sums[end] - even)
      --end;
    end = std::clamp(end, std::max(earliest[lap], begin + 1), latest);
    for (size_t unit = begin; unit < end; ++unit)
      ring.offset.push_back(sums[unit] - sums[begin]);
    ring.bytes = std::max(ring.bytes, sums[end] - sums[begin]);
    begin = end;
  }
  return ring;
}

} // namespace

RingAssignment assignRing(absl::Span<const uint64_t> unitBytes, size_t laps) {
  if (unitBytes.empty())
    return {};
  const std::vector<uint64_t> sums = prefixSums(unitBytes);
  // The least capacity with which so many runs do: they then do for any that is larger.
  uint64_t low = std::max(largestUnit(sums), (sums.back() / laps + kRingAlign - 1) / kRingAlign * kRingAlign);
  uint64_t high = std::max(low, std::min(sums.back(), sums.back() / laps + largestUnit(sums)));
  // Where sizes repeat, few capacities make a difference, and stepping from one to the next arrives soon; else
  // bisection.
  for (int step = 0; step < 8 && low < high; ++step) {
    uint64_t next = high;
    if (runsWithin(sums, low, laps, &next) <= laps)
      high = low;
    else
      low = std::min(next, high);
  }
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2 / kRingAlign * kRingAlign;
    if (runsWithin(sums, middle, laps) <= laps)
      high = middle;
    else
      low = middle + kRingAlign;
  }
  return evenLaps(sums, high, runsWithin(sums, high, laps));
}

std::optional<RingAssignment> assignRingWithin(absl::Span<const uint64_t> unitBytes, uint64_t ringBytes) {
  if (unitBytes.empty())
    return RingAssignment{};
  const std::vector<uint64_t> sums = prefixSums(unitBytes);
  if (largestUnit(sums) > ringBytes)
    return std::nullopt;
  return assignRing(unitBytes, runsWithin(sums, ringBytes, unitBytes.size()));
}

RingTimes ringTimes(const RingAssignment &ring, absl::Span<const uint64_t> unitBytes,
                    absl::Span<const uint32_t> lastUse) {
  // What lies in the ring, by ends of ranges: before this lap, and as far as this lap has come.
  using Runs = std::vector<std::pair<uint64_t, int64_t>>; // end, the last step that reads what lies before it
  Runs before, now;
  const size_t units = unitBytes.size();
  RingTimes times;
  times.freeAfter.reserve(units);
  const auto latest = [&](size_t &first, uint64_t begin, uint64_t end) {
    while (first < before.size() && before[first].first <= begin)
      ++first;
    int64_t step = -1;
    for (size_t run = first; run < before.size(); ++run) {
      step = std::max(step, before[run].second);
      if (before[run].first >= end)
        break;
    }
    return step;
  };
  for (size_t lap = 0; lap < ring.lapBegin.size(); ++lap) {
    const size_t last = lap + 1 < ring.lapBegin.size() ? ring.lapBegin[lap + 1] : units;
    now.clear();
    size_t first = 0;
    uint64_t end = 0;
    for (size_t unit = ring.lapBegin[lap]; unit < last; ++unit) {
      end = ring.offset[unit] + roundUp(unitBytes[unit]);
      times.freeAfter.push_back(latest(first, ring.offset[unit], end));
      now.emplace_back(end, std::max<int64_t>(times.freeAfter.back(), lastUse[unit]));
    }
    for (; first < before.size(); ++first) // beyond this lap's end lies what was there
      if (before[first].first > end)
        now.push_back(before[first]);
    std::swap(before, now);
  }
  const size_t firstLap = ring.lapBegin.size() > 1 ? ring.lapBegin[1] : units;
  size_t first = 0;
  for (size_t unit = 0; unit < firstLap; ++unit)
    times.tailFreeAfter.push_back(latest(first, ring.offset[unit], ring.offset[unit] + roundUp(unitBytes[unit])));
  return times;
}

} // namespace headrace::algorithms
