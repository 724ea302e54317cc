// SPDX-License-Identifier: Apache-2.0
//
// Copies beside launches (core/BesideCopies.h) in virtual time: what is left of them, and when they end. Whoever plays
// launches plays these with them: both rows of a direction at once take turns, so each goes at half its rate, on top of
// what the other direction slows them by.
//
//   h2d of launches   [ full ][ half      ][ full ]
//   h2d beside                [ half      ]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/types/span.h"
#include "runtime/core/BesideCopies.h"
#include "runtime/sim/LaneRates.h"
#include "runtime/sim/TimedSchedule.h"

namespace headrace::sim {

inline constexpr int64_t kUnknownNs = -1;
inline constexpr int64_t kNeverNs = std::numeric_limits<int64_t>::max();
inline constexpr uint64_t kLongestWaitNs = uint64_t{1} << 60; // an event is looked at again after it

using Progress = unsigned __int128; // in 2^-32 ns of a copy's own rate

// The rate of a copy, of kFullRate, on a link alone: `otherDirection`, `besides`: whether copies of the other
// direction, and of its own direction's other row, are at work as well.
constexpr uint64_t rateBeside(uint64_t bothRate, bool otherDirection, bool besides) {
  return (otherDirection ? bothRate : kFullRate) / (besides ? 2 : 1);
}

// Until a copy has ended of which so much is left: the first nanosecond at which all of it has been moved.
inline Progress nsLeft(Progress left, uint64_t rate) {
  if (rate == kFullRate)
    return (left + (kFullRate - 1)) / kFullRate;
  if (left <= std::numeric_limits<uint64_t>::max() - kFullRate)
    return (static_cast<uint64_t>(left) + rate - 1) / rate;
  return (left + rate - 1) / rate;
}

// Of one device; directions are 0, to the device, and 1, to the host.
class BesideCopies {
public:
  struct Copy {
    TimedStep timed;      // of no step
    uint64_t ticket = 0;  //
    uint64_t after = 0;   // launches that end before it starts
    int64_t readyNs = -1; // once these are known to have ended: when; kUnknownNs before
  };

  void clear();
  // Adds copies that start once so many launches have ended: at readyNs, or where that is not known kUnknownNs. Returns
  // their ticket. Tickets that had ended at nowNs are given up. Allocates while more is under way than ever before.
  uint64_t ask(absl::Span<const core::BlockCopy> copies, const LinkRates &link, uint64_t after, int64_t readyNs,
               int64_t nowNs);
  // So many launches have ended, the last of them at endNs.
  void launchEnded(uint64_t launches, int64_t endNs);

  uint64_t given() const { return tickets_.next(); } // tickets
  // When a ticket ended or will; kUnknownNs: not known yet. Of one that was given up 0.
  const int64_t &endNs(uint64_t ticket) const;
  int64_t lastEndNs() const { return lastEndNs_; } // of all copies that have ended

  bool idle() const { return empty(0) && empty(1); }
  bool empty(size_t direction) const { return rows_[direction].copies.empty(); }
  const Copy &front(size_t direction) const { return rows_[direction].copies[rows_[direction].copies.first()]; }
  void endFront(size_t direction, int64_t endNs);

  // For who plays copies that are all ready, with those of a launch or alone.
  using Rates = std::array<uint64_t, 2>; // of a direction's copies
  // `launch`: which lanes of the launch are at work.
  Rates rates(const LaneRates &lanes, const LaneRates::AtWork &launch) const;
  // ... of those too, with these beside.
  LaneRates::AtWork atWork(const LaneRates::AtWork &launch) const {
    return {launch[0] || !empty(0), launch[1] || !empty(1), launch[LaneRates::kCpu]};
  }
  void endDone(int64_t nowNs);                               // those of which nothing is left
  Progress leastWait(const Rates &rates, Progress ns) const; // to the end of one, at most ns
  void pass(const Rates &rates, uint64_t ns);
  // From one time to another with no launch, or until `ticket` (0: none) has ended; returns the time that it came to.
  int64_t playAlone(int64_t fromNs, int64_t toNs, const LaneRates &lanes, uint64_t ticket = 0);

private:
  struct Row {
    core::Ring<Copy, 1024> copies;
    uint64_t released = 0; // of those before it readyNs is known
    Progress left = 0;     // of the first
  };
  struct Ticket {
    uint64_t copies = 0; // that have not ended
    int64_t lastNs = 0;
    int64_t endNs = kUnknownNs;
  };
  static void add(Row &row, const Copy &copy);

  std::array<Row, 2> rows_;
  core::Ring<Ticket, 1024> tickets_; // ticket n is number n - 1
  int64_t lastEndNs_ = 0;
};

} // namespace headrace::sim
