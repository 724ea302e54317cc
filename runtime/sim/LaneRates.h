// SPDX-License-Identifier: Apache-2.0
//
// At what rate of their own lanes work that slow each other: copies of both directions of a device's link, and its cpu
// lane, which shares host memory with both (cost/CostModel.h: Sharing).
//
//   host memory of 26 GB/s     h2d asks for 15, the cpu lane for 20: max-min gives 13 to each
//   h2d   [ 13 of 15 ]         a second's worth ends after 15 / 13 = 1.154 s
//   cpu   [ 13 of 20 ][ 20 ]   of 20 GB 15 by then, the other 5 at its own rate: after 1.404 s
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/cost/CostModel.h"
#include "runtime/sim/TimedSchedule.h"

namespace headrace::sim {

// The rate of what gets `share` of what it takes alone: rounded up, so that it ends at the first nanosecond at which
// all of it has been done. At least 1, at most `most`.
uint64_t slowedRate(double share, uint64_t most);

class LaneRates {
public:
  static constexpr size_t kH2D = 0, kD2H = 1, kCpu = 2;
  using AtWork = std::array<bool, 3>; // by lane, as above

  explicit LaneRates(const cost::Sharing &sharing);
  // Of a lane, of kFullRate, with these at work beside it. At least 1.
  uint64_t of(size_t lane, const AtWork &atWork) const { return rates_[numberOf(atWork)][lane]; }
  // Whether one of these is ever slower than alone, some of the others beside it or none.
  bool slows(const AtWork &lanes) const { return slows_[numberOf(lanes)]; }
  bool cpuShares() const { return cpuShares_; } // the cpu lane slows a copy, or is slowed by one, or by host memory

private:
  static size_t numberOf(const AtWork &lanes) {
    return (lanes[kH2D] ? 1U : 0U) | (lanes[kD2H] ? 2U : 0U) | (lanes[kCpu] ? 4U : 0U);
  }
  void seeWhoSlows();

  std::array<std::array<uint64_t, 3>, 8> rates_{}; // by who is at work
  std::array<bool, 8> slows_{};
  bool cpuShares_ = false;
};

} // namespace headrace::sim
