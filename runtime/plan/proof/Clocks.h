// SPDX-License-Identifier: Apache-2.0
//
// What has ended before what starts, from lane order and edges.
//
//   compute   0 ----- 2 ------------ 4        edges 1 -> 2, 2 -> 3, 3 -> 4
//   h2d          1          3                 clock of 4: compute 2, h2d 3; clock of 3: compute 2 (so 0 too), h2d 1
//
// A step's clock holds, for each lane, the last step of it that is known to have ended when the step starts; the steps
// of a lane run one after another, so all earlier ones of that lane have ended too.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

// By lane; -1: none.
using Clock = std::array<int32_t, kLanes>;

class Clocks {
public:
  explicit Clocks(const Schedule &schedule);

  // Step `before` has ended when step `after` starts, whatever the durations. before < after.
  bool ordered(uint32_t before, uint32_t after) const {
    return clocks_[after][lane(before)] >= static_cast<int32_t>(before);
  }
  const Clock &operator[](uint32_t step) const { return clocks_[step]; }
  size_t lane(uint32_t step) const { return lanes_[step]; }
  // The step before in the same lane, -1 for the first.
  int32_t previous(uint32_t step) const { return previous_[step]; }
  // The edges into a step: [edgesBegin(step), edgesBegin(step + 1)) of the schedule's.
  uint32_t edgesBegin(uint32_t step) const { return edgesBegin_[step]; }

  // What a step knows through one that it waits for.
  static void learn(Clock &clock, const Clock &of, size_t lane, int32_t step);

private:
  std::vector<Clock> clocks_;
  std::vector<uint8_t> lanes_;
  std::vector<int32_t> previous_;
  std::vector<uint32_t> edgesBegin_;
};

} // namespace headrace::plan
