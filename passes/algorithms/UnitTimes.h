// SPDX-License-Identifier: Apache-2.0
//
// How long iterations take when some units are offloaded and go through a ring, fast enough to ask for hundreds of
// thousands of choices: the recurrence of PlanCut.h, from unit to unit instead of from step to step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "passes/algorithms/AssignRing.h"
#include "passes/algorithms/PlanCut.h"

namespace headrace::algorithms {

struct OffloadableUnit {
  uint64_t bytes = 0; // multiple of the alignment
  int32_t layer = -1; // -1: the head
  int32_t role = 0;   // units of one role are of one kind: a layer has each at most once
};

// The iterations of one iteration class, which share a schedule and so a cut.
struct ScheduleTimes {
  struct Use {
    uint32_t first = 0, last = 0; // compute steps that read the unit
  };
  struct Bucket {
    std::vector<uint64_t> computeNs; // by step
    uint64_t sloNs = 0;              // the iteration may take so long
  };
  std::vector<Use> uses; // by unit; a unit is used no more when the next one is first used
  std::vector<Bucket> buckets;
};

struct UnitProblem {
  std::vector<OffloadableUnit> units; // in order of use
  std::vector<ScheduleTimes> schedules;
  std::function<uint64_t(uint64_t bytes)> copyNs; // what a copy of so many bytes takes; never less for more
  uint64_t alignment = kRingAlign;                // of cuts
};

// A cut for each schedule, and what each schedule's buckets take.
struct UnitTiming {
  std::vector<Cut> cuts;
  std::vector<std::vector<uint64_t>> ns;
  bool operator==(const UnitTiming &) const = default;
};

class UnitTimes {
public:
  // The problem must outlive it.
  explicit UnitTimes(const UnitProblem &problem);

  // Whether there are cuts with which every bucket meets its SLO when `units` (indices, ascending) go through a ring of
  // so many laps; on a grid of 64 positions a unit, so that a cut that would just do may be missed. `ring` is
  // assignRing() of the units or another assignment of them.
  bool meets(absl::Span<const uint32_t> units, const RingAssignment &ring);
  // The cuts that the last meets() which said yes found, with the times.
  UnitTiming timing(absl::Span<const uint32_t> units, const RingAssignment &ring);

  uint64_t copyNs(size_t unit) const { return copyNs_[unit]; }
  uint64_t ringBytes(size_t unit) const { return ringBytes_[unit]; } // that it takes in a ring
  // Compute up to step `step` of a bucket, waiting for nothing.
  uint64_t computeNs(size_t schedule, size_t bucket, size_t step) const { return sums_[schedule][bucket][step]; }
  uint64_t computeNs(size_t schedule, size_t bucket) const { return sums_[schedule][bucket].back(); }
  // By step, all steps behind the last.
  absl::Span<const uint64_t> computeSums(size_t schedule, size_t bucket) const { return sums_[schedule][bucket]; }
  uint64_t evaluations() const { return evaluations_; } // iterations played

private:
  static constexpr uint64_t kGrid = 64;
  struct Ends {
    uint64_t link, compute;
  };
  // `position`: units * kGrid + part of the one after them.
  Ends play(size_t schedule, size_t bucket, absl::Span<const uint32_t> units, uint64_t position);
  void prepare(absl::Span<const uint32_t> units, const RingAssignment &ring);
  bool meets(size_t schedule, absl::Span<const uint32_t> units, uint64_t positions, uint64_t &position);
  uint64_t partBytes(uint32_t unit, uint64_t part) const;

  const UnitProblem &problem_;
  std::vector<uint64_t> copyNs_, ringBytes_;             // by unit
  std::vector<uint32_t> sizeOf_;                         // by unit: index into partNs_
  std::vector<std::vector<uint64_t>> partNs_;            // by size and part: what a copy of that part takes ...
  std::vector<std::vector<uint64_t>> restNs_;            // ... and one of the rest
  std::vector<std::vector<std::vector<uint64_t>>> sums_; // by schedule and bucket: prefix sums of computeNs
  std::vector<uint64_t> positions_;                      // by schedule, of the last meets()
  uint64_t evaluations_ = 0;
  // Of the set at hand, by position in it: whose last use frees the range (-1: none), in an iteration and in its tail.
  std::vector<int32_t> freeAfter_, tailFreeAfter_;
  std::vector<uint64_t> useEnd_;
  std::vector<std::pair<uint64_t, int32_t>> before_, now_;
  size_t firstLap_ = 0;
};

} // namespace headrace::algorithms
