// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/FillLink.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace headrace::algorithms {
namespace {

// A ring that is filled first in, first out, and when what lies in it has been used. Units are used in their order, so
// only the lap before counts: what is left of older laps has been used when a unit of this lap may come.
class Ring {
public:
  explicit Ring(uint64_t bytes) : bytes_(bytes) {}

  // Until when the range is in use where the next unit would lie.
  double freeAt(uint64_t size) const {
    const bool wraps = offset_ + size > bytes_; // not in an empty ring: no unit is larger than it
    const Runs &lap = wraps ? now_ : before_;
    const uint64_t begin = wraps ? 0 : offset_, end = begin + size;
    double free = -std::numeric_limits<double>::infinity(); // what nothing has been in may be filled before the start
    for (size_t run = wraps ? 0 : first_; run < lap.size(); ++run)
      if (lap[run].first > begin) {
        free = lap[run].second;
        if (lap[run].first >= end)
          break;
      }
    return free;
  }

  void put(uint64_t size, double usedUntil) {
    if (offset_ + size > bytes_) {
      std::swap(before_, now_);
      now_.clear();
      first_ = 0;
      offset_ = 0;
    }
    offset_ += size;
    while (first_ < before_.size() && before_[first_].first <= offset_)
      ++first_;
    now_.emplace_back(offset_, usedUntil);
  }

private:
  using Runs = std::vector<std::pair<uint64_t, double>>; // end, in use until; neither falls
  const uint64_t bytes_;
  uint64_t offset_ = 0;
  size_t first_ = 0; // of before_, that this lap has not passed
  Runs before_, now_;
};

} // namespace

std::vector<uint32_t> fillLink(const UnitProblem &problem, const UnitTimes &times, const LinkFill &fill) {
  const absl::Span<const uint64_t> computeNs = times.computeSums(fill.schedule, fill.bucket);
  const auto time = static_cast<double>(fill.timeNs);
  const double stretched = time / std::max(1.0, static_cast<double>(computeNs.back()));
  const std::vector<ScheduleTimes::Use> &uses = problem.schedules[fill.schedule].uses;
  Ring ring(fill.ringBytes);
  std::vector<uint32_t> taken;
  uint64_t bytes = 0;
  double lead = 0, link = 0, late = 0; // late: how long compute has waited
  for (uint32_t unit = 0; unit < problem.units.size(); ++unit) {
    if (!fill.may[unit] && !fill.must[unit])
      continue;
    const uint64_t size = times.ringBytes(unit);
    const auto copy = static_cast<double>(times.copyNs(unit));
    if (taken.empty()) {
      lead = copy * static_cast<double>(fill.leadBytes) / static_cast<double>(size);
      link = -lead;
    }
    const auto needed = static_cast<double>(computeNs[uses[unit].first]);
    const double latest = std::min(needed * stretched, time - lead);
    if (!fill.must[unit] && (link + copy > latest || bytes + problem.units[unit].bytes > fill.mostBytes))
      continue;
    const double done = std::max(link, ring.freeAt(size)) + copy;
    if (!fill.must[unit] && done > latest)
      continue;
    link = done;
    late = std::max(late, done - needed);
    bytes += problem.units[unit].bytes;
    ring.put(size, static_cast<double>(computeNs[uses[unit].last + 1]) + late);
    taken.push_back(unit);
  }
  return taken;
}

} // namespace headrace::algorithms
