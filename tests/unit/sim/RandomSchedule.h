// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rapidcheck.h>

#include "tests/unit/sim/Schedules.h"

namespace headrace::sim {

inline int below(int limit) { return *rc::gen::inRange(0, limit); }

// Steps on compute, h2d, d2h and cpu with edges between lanes; copies of 1 to 4 bytes/ns after a latency.
inline HandMade randomSchedule(int64_t latencyNs, int longestNs, bool cpuOften = false) {
  HandMade made;
  const int steps = below(14);
  for (int i = 0; i < steps; ++i) {
    constexpr plan::Lane kLanes[] = {plan::Lane::Compute, plan::Lane::H2D, plan::Lane::D2H, plan::Lane::Cpu};
    const plan::Lane lane = kLanes[below(cpuOften ? 4 : 10) < 1 ? 3 : below(3)];
    std::vector<uint32_t> after;
    for (uint32_t from = 0; from < made.schedule.steps.size(); ++from)
      if (made.schedule.steps[from].lane != lane && below(4) == 0)
        after.push_back(from);
    const auto ns = static_cast<uint64_t>(below(longestNs + 1));
    const uint32_t step = made.add(lane, ns, after);
    if ((lane == plan::Lane::H2D || lane == plan::Lane::D2H) && below(8) != 0) {
      const uint64_t flowNs = ns > static_cast<uint64_t>(latencyNs) ? ns - static_cast<uint64_t>(latencyNs) : ns;
      made.schedule.steps[step].linkBytes = flowNs * static_cast<uint64_t>(1 + below(4));
    }
  }
  if (below(2) == 0)
    made.publish(static_cast<uint64_t>(below(3)));
  return made;
}

} // namespace headrace::sim
