// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/FillLink.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace headrace::algorithms {
namespace {

constexpr uint64_t roundUp(uint64_t bytes) { return (bytes + kRingAlign - 1) / kRingAlign * kRingAlign; }

// A ring that is filled first in, first out, and when what lies in it has been used.
class Ring {
public:
  explicit Ring(uint64_t bytes) : bytes_(bytes) {}

  // Until when the range is in use where the next unit would lie.
  double freeAt(uint64_t size) const {
    const bool wraps = offset_ + size > bytes_; // not in an empty ring: no unit is larger than it
    const uint64_t begin = wraps ? 0 : offset_, end = begin + size;
    double free = -std::numeric_limits<double>::infinity(); // what nothing has been in may be filled before the start
    const auto over = [&](const Runs &runs, size_t first, uint64_t from) {
      for (size_t run = first; run < runs.size(); ++run)
        if (runs[run].first > from) {
          free = std::max(free, runs[run].second);
          if (runs[run].first >= end)
            break;
        }
    };
    if (wraps)
      over(now_, 0, begin);
    if (!wraps)
      over(before_, first_, begin);
    else if (end > now_.back().first) // beyond this lap's end lies what was there before
      over(before_, first_, now_.back().first);
    return free;
  }

  void put(uint64_t size, double usedUntil) {
    if (offset_ + size > bytes_) {
      for (; first_ < before_.size(); ++first_)
        if (before_[first_].first > now_.back().first)
          now_.push_back(before_[first_]);
      std::swap(before_, now_);
      now_.clear();
      first_ = 0;
      offset_ = 0;
    }
    while (first_ < before_.size() && before_[first_].first <= offset_)
      ++first_;
    offset_ += size;
    now_.emplace_back(offset_, usedUntil);
  }

private:
  using Runs = std::vector<std::pair<uint64_t, double>>; // end, in use until
  const uint64_t bytes_;
  uint64_t offset_ = 0;
  size_t first_ = 0; // of before_, that this lap has not passed
  Runs before_, now_;
};

} // namespace

std::vector<uint32_t> fillLink(const UnitProblem &problem, const UnitTimes &times, const LinkFill &fill) {
  const auto computeNs = [&](size_t step) {
    return static_cast<double>(times.computeNs(fill.schedule, fill.shape, step));
  };
  const auto time = static_cast<double>(fill.timeNs);
  const double stretched = time / std::max(1.0, static_cast<double>(times.computeNs(fill.schedule, fill.shape)));
  const std::vector<ScheduleTimes::Use> &uses = problem.schedules[fill.schedule].uses;
  Ring ring(fill.ringBytes);
  std::vector<uint32_t> taken;
  uint64_t bytes = 0;
  double lead = 0, link = 0, late = 0; // late: how long compute has waited
  for (uint32_t unit = 0; unit < problem.units.size(); ++unit) {
    if (!fill.may[unit] && !fill.must[unit])
      continue;
    const uint64_t size = roundUp(problem.units[unit].bytes);
    const auto copy = static_cast<double>(times.copyNs(unit));
    if (taken.empty()) {
      lead = copy * static_cast<double>(fill.leadBytes) / static_cast<double>(size);
      link = -lead;
    }
    const double done = std::max(link, ring.freeAt(size)) + copy;
    const double needed = computeNs(uses[unit].first);
    const bool inTime = done <= std::min(needed * stretched, time - lead);
    if (!fill.must[unit] && (!inTime || bytes + problem.units[unit].bytes > fill.mostBytes))
      continue;
    link = done;
    late = std::max(late, done - needed);
    bytes += problem.units[unit].bytes;
    ring.put(size, computeNs(uses[unit].last + 1) + late);
    taken.push_back(unit);
  }
  return taken;
}

} // namespace headrace::algorithms
