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

// Runs filled one after another; more than `limit` of them are not counted. No unit is larger than `capacity`.
struct Filled {
  size_t runs = 0;
  uint64_t largest = 0; // of the runs
  uint64_t next = 0;    // the least capacity that would fill any of them further; the largest number where none does
};
Filled fillRuns(const std::vector<uint64_t> &sums, uint64_t capacity, size_t limit) {
  Filled filled;
  filled.next = std::numeric_limits<uint64_t>::max();
  const uint64_t *end = sums.data() + sums.size();
  for (const uint64_t *at = sums.data() + 1; at != end && filled.runs <= limit; ++filled.runs) {
    const uint64_t begin = at[-1], most = begin + capacity;
    while (at != end && *at <= most)
      ++at;
    filled.largest = std::max(filled.largest, at[-1] - begin);
    if (at != end)
      filled.next = std::min(filled.next, *at - begin);
  }
  return filled;
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
  for (size_t lap = laps - 1, at = units; lap-- > 0;) {
    const uint64_t end = sums[earliest[lap + 1]];
    while (at > 0 && sums[at - 1] + capacity >= end)
      --at;
    earliest[lap] = std::max(at, lap + 1);
  }
  RingAssignment ring;
  ring.offset.resize(units);
  ring.lapBegin.resize(laps);
  size_t begin = 0, full = 0, behind = 0;
  for (size_t lap = 0; lap < laps; ++lap) {
    ring.lapBegin[lap] = begin;
    while (full < units && sums[full + 1] <= sums[begin] + capacity) // the end of the longest run
      ++full;
    // The cut nearest to an even one; of two as near the one behind. sum * (lap + 1) may pass 2^64: divided first.
    const uint64_t even = sums[units] / laps * (lap + 1) + sums[units] % laps * (lap + 1) / laps;
    while (behind < units && sums[behind] < even)
      ++behind;
    size_t end = behind;
    if (end > begin && even - sums[end - 1] < sums[end] - even)
      --end;
    end = std::clamp(end, std::max(earliest[lap], begin + 1), std::min(full, units - (laps - 1 - lap)));
    for (size_t unit = begin; unit < end; ++unit)
      ring.offset[unit] = sums[unit] - sums[begin];
    ring.bytes = std::max(ring.bytes, sums[end] - sums[begin]);
    begin = end;
  }
  return ring;
}

// The smallest ring for so many laps, which is known to be at most `within`.
RingAssignment leastRing(const std::vector<uint64_t> &sums, size_t laps, uint64_t within) {
  // The least capacity with which so many runs do: they then do for any that is larger. Only capacities that some run
  // fills exactly count, so each try moves a bound to one of them.
  const uint64_t largest = largestUnit(sums);
  uint64_t low = std::max(largest, (sums.back() / laps + kRingAlign - 1) / kRingAlign * kRingAlign);
  uint64_t high = std::max(low, std::min({within, sums.back(), sums.back() / laps + largest}));
  size_t runs = 0; // with a capacity of `high`; 0: not known
  for (uint64_t middle = low; low < high; middle = low + (high - low) / 2 / kRingAlign * kRingAlign) {
    const Filled filled = fillRuns(sums, middle, laps);
    if (filled.runs <= laps) {
      high = filled.largest; // which fills the same runs
      runs = filled.runs;
    } else {
      low = std::min(filled.next, high);
    }
  }
  return evenLaps(sums, high, runs > 0 ? runs : fillRuns(sums, high, laps).runs);
}

} // namespace

RingAssignment assignRing(absl::Span<const uint64_t> unitBytes, size_t laps, uint64_t within) {
  if (unitBytes.empty())
    return {};
  return leastRing(prefixSums(unitBytes), laps, within);
}

std::optional<RingAssignment> assignRingWithin(absl::Span<const uint64_t> unitBytes, uint64_t ringBytes) {
  if (unitBytes.empty())
    return RingAssignment{};
  const std::vector<uint64_t> sums = prefixSums(unitBytes);
  if (largestUnit(sums) > ringBytes)
    return std::nullopt;
  const Filled filled = fillRuns(sums, ringBytes, unitBytes.size());
  return leastRing(sums, std::max<size_t>(1, filled.runs), filled.largest);
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
