// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/proof/Clocks.h"

#include <algorithm>

namespace headrace::plan {

void Clocks::learn(Clock &clock, const Clock &of, size_t lane, int32_t step) {
  for (int l = 0; l < kLanes; ++l)
    clock[l] = std::max(clock[l], of[l]);
  clock[lane] = std::max(clock[lane], step);
}

Clocks::Clocks(const Schedule &schedule) {
  const auto steps = static_cast<uint32_t>(schedule.steps.size());
  clocks_.reserve(steps);
  lanes_.reserve(steps);
  previous_.reserve(steps);
  edgesBegin_.reserve(steps + 1);
  std::array<int32_t, kLanes> last;
  last.fill(-1);
  uint32_t edge = 0;
  for (uint32_t step = 0; step < steps; ++step) {
    const auto lane = static_cast<size_t>(schedule.steps[step].lane);
    lanes_.push_back(static_cast<uint8_t>(lane));
    previous_.push_back(last[lane]);
    edgesBegin_.push_back(edge);
    Clock clock;
    clock.fill(-1);
    if (last[lane] >= 0)
      learn(clock, clocks_[last[lane]], lane, last[lane]);
    for (; edge < schedule.edges.size() && schedule.edges[edge].to == step; ++edge) {
      const uint32_t from = schedule.edges[edge].from;
      learn(clock, clocks_[from], lanes_[from], static_cast<int32_t>(from));
    }
    clocks_.push_back(clock);
    last[lane] = static_cast<int32_t>(step);
  }
  edgesBegin_.push_back(edge);
}

} // namespace headrace::plan
