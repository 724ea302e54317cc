// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/UnitTimes.h"

#include <algorithm>
#include <utility>

namespace headrace::algorithms {

UnitTimes::UnitTimes(const UnitProblem &problem) : problem_(problem), positions_(problem.schedules.size(), 0) {
  std::vector<uint64_t> sizes;
  for (uint32_t unit = 0; unit < problem.units.size(); ++unit) {
    const uint64_t bytes = problem.units[unit].bytes;
    ringBytes_.push_back((bytes + kRingAlign - 1) / kRingAlign * kRingAlign);
    const auto it = std::find(sizes.begin(), sizes.end(), bytes);
    sizeOf_.push_back(static_cast<uint32_t>(it - sizes.begin()));
    if (it == sizes.end()) {
      sizes.push_back(bytes);
      partNs_.emplace_back(kGrid, 0);
      restNs_.emplace_back(kGrid, problem.copyNs(bytes));
      for (uint64_t part = 1; part < kGrid; ++part) {
        const uint64_t cut = partBytes(unit, part);
        partNs_.back()[part] = cut ? problem.copyNs(cut) : 0;
        restNs_.back()[part] = problem.copyNs(bytes - cut);
      }
    }
    copyNs_.push_back(restNs_[sizeOf_.back()][0]);
  }
  for (const ScheduleTimes &schedule : problem.schedules) {
    sums_.emplace_back();
    for (const ScheduleTimes::Bucket &bucket : schedule.buckets) {
      std::vector<uint64_t> &sums = sums_.back().emplace_back(1, 0);
      for (const uint64_t ns : bucket.computeNs)
        sums.push_back(sums.back() + ns);
    }
  }
}

uint64_t UnitTimes::partBytes(uint32_t unit, uint64_t part) const {
  const uint64_t bytes = problem_.units[unit].bytes;
  return (bytes / kGrid * part + bytes % kGrid * part / kGrid) / problem_.alignment * problem_.alignment;
}

// As ringTimes(), in places that are used again.
void UnitTimes::prepare(absl::Span<const uint32_t> units, const RingAssignment &ring) {
  freeAfter_.resize(units.size());
  useEnd_.resize(units.size());
  before_.clear();
  size_t first = 0; // of before_, that this lap has not passed
  const auto latest = [&](uint64_t begin, uint64_t end) {
    const size_t runs = before_.size();
    const std::pair<uint64_t, int32_t> *run = before_.data();
    while (first < runs && run[first].first <= begin)
      ++first;
    int32_t last = -1;
    for (size_t at = first; at < runs; ++at) {
      last = std::max(last, run[at].second);
      if (run[at].first >= end)
        break;
    }
    return last;
  };
  for (size_t lap = 0; lap < ring.lapBegin.size(); ++lap) {
    const size_t last = lap + 1 < ring.lapBegin.size() ? ring.lapBegin[lap + 1] : units.size();
    now_.clear();
    first = 0;
    for (size_t k = ring.lapBegin[lap]; k < last; ++k) {
      const uint64_t end = ring.offset[k] + ringBytes_[units[k]];
      freeAfter_[k] = latest(ring.offset[k], end);
      now_.emplace_back(end, static_cast<int32_t>(k));
    }
    for (; first < before_.size(); ++first)
      if (before_[first].first > now_.back().first)
        now_.push_back(before_[first]);
    std::swap(before_, now_);
  }
  firstLap_ = ring.lapBegin.size() > 1 ? ring.lapBegin[1] : units.size();
  tailFreeAfter_.resize(firstLap_);
  first = 0;
  for (size_t k = 0; k < firstLap_; ++k)
    tailFreeAfter_[k] = latest(ring.offset[k], ring.offset[k] + ringBytes_[units[k]]);
}

UnitTimes::Ends UnitTimes::play(size_t schedule, size_t bucket, absl::Span<const uint32_t> units, uint64_t position) {
  ++evaluations_;
  const std::vector<uint64_t> &sums = sums_[schedule][bucket];
  const ScheduleTimes::Use *uses = problem_.schedules[schedule].uses.data();
  const size_t carried = position / kGrid;
  const uint64_t part = position % kGrid;
  uint64_t link = 0, late = 0; // late: how far compute is behind `sums`
  for (size_t k = 0; k < carried; ++k)
    useEnd_[k] = sums[uses[units[k]].last + 1];
  for (size_t k = carried; k < units.size(); ++k) {
    const uint32_t unit = units[k];
    if (freeAfter_[k] >= 0)
      link = std::max(link, useEnd_[static_cast<size_t>(freeAfter_[k])]);
    link += k == carried ? restNs_[sizeOf_[unit]][part] : copyNs_[unit];
    const ScheduleTimes::Use &use = uses[unit];
    if (link > sums[use.first] + late)
      late = link - sums[use.first];
    useEnd_[k] = sums[use.last + 1] + late;
  }
  const uint64_t compute = sums.back() + late;
  for (size_t k = 0; k < carried; ++k)
    link = std::max(link, useEnd_[static_cast<size_t>(tailFreeAfter_[k])]) + copyNs_[units[k]];
  if (part && partNs_[sizeOf_[units[carried]]][part])
    link =
        std::max(link, useEnd_[static_cast<size_t>(tailFreeAfter_[carried])]) + partNs_[sizeOf_[units[carried]]][part];
  return {link, compute};
}

// A longer prefix lets compute end earlier (less is copied before any use) and the link end later (the tail is longer
// by what the rest is shorter, and waits for later uses). So where the two SLO conditions hold is a range of positions.
bool UnitTimes::meets(size_t schedule, absl::Span<const uint32_t> units, uint64_t positions, uint64_t &position) {
  const std::vector<ScheduleTimes::Bucket> &buckets = problem_.schedules[schedule].buckets;
  uint64_t low = 0, high = positions;
  position = std::min(position, high);
  for (;;) {
    bool longer = false, shorter = false;
    for (size_t bucket = 0; bucket < buckets.size() && !(longer && shorter); ++bucket) {
      const Ends ends = play(schedule, bucket, units, position);
      longer |= ends.compute > buckets[bucket].sloNs;
      shorter |= ends.link > buckets[bucket].sloNs;
    }
    if (!longer && !shorter)
      return true;
    if (longer && shorter)
      return false;
    if (longer)
      low = position + 1;
    else if (position == 0)
      return false;
    else
      high = position - 1;
    if (low > high)
      return false;
    position = low + (high - low) / 2;
  }
}

bool UnitTimes::meets(absl::Span<const uint32_t> units, const RingAssignment &ring) {
  prepare(units, ring);
  for (size_t schedule = 0; schedule < problem_.schedules.size(); ++schedule)
    if (!meets(schedule, units, firstLap_ * kGrid, positions_[schedule]))
      return false;
  return true;
}

UnitTiming UnitTimes::timing(absl::Span<const uint32_t> units, const RingAssignment &ring) {
  UnitTiming timing;
  prepare(units, ring);
  for (size_t schedule = 0; schedule < problem_.schedules.size(); ++schedule) {
    const uint64_t position = std::min<uint64_t>(positions_[schedule], firstLap_ * kGrid);
    const size_t carried = position / kGrid;
    const uint64_t part = position % kGrid;
    timing.cuts.push_back({carried, part ? partBytes(units[carried], part) : 0});
    timing.ns.emplace_back();
    for (size_t bucket = 0; bucket < problem_.schedules[schedule].buckets.size(); ++bucket) {
      const Ends ends = play(schedule, bucket, units, position);
      timing.ns.back().push_back(std::max(ends.link, ends.compute));
    }
  }
  return timing;
}

} // namespace headrace::algorithms
