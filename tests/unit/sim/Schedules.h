// SPDX-License-Identifier: Apache-2.0
//
// Schedules made by hand: steps with a lane and a duration, edges by index.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::sim {

struct HandMade {
  plan::Schedule schedule;
  std::vector<uint64_t> durations;

  uint32_t add(plan::Lane lane, uint64_t ns, std::vector<uint32_t> after = {}) {
    plan::Step step;
    const bool copies = lane == plan::Lane::H2D || lane == plan::Lane::D2H;
    step.kind = copies ? plan::StepKind::Copy : plan::StepKind::Compute;
    step.lane = lane;
    const auto index = static_cast<uint32_t>(schedule.steps.size());
    schedule.steps.push_back(step);
    durations.push_back(ns);
    std::sort(after.begin(), after.end());
    for (uint32_t from : after)
      schedule.edges.push_back({from, index, plan::EdgeKind::Raw});
    return index;
  }
  uint32_t compute(uint64_t ns, std::vector<uint32_t> after = {}) { return add(plan::Lane::Compute, ns, after); }
  uint32_t h2d(uint64_t ns, std::vector<uint32_t> after = {}) { return add(plan::Lane::H2D, ns, after); }
  uint32_t d2h(uint64_t ns, std::vector<uint32_t> after = {}) { return add(plan::Lane::D2H, ns, after); }
  uint32_t cpu(uint64_t ns, std::vector<uint32_t> after = {}) { return add(plan::Lane::Cpu, ns, after); }
  uint32_t publish(uint64_t ns) {
    const uint32_t index = compute(ns);
    schedule.steps[index].kind = plan::StepKind::Publish;
    return index;
  }
};

} // namespace headrace::sim
