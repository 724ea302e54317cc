// SPDX-License-Identifier: Apache-2.0
//
// A decode iteration that offloads every second layer, unit by unit: 9 compute steps a layer, 4 copies an
// offloaded layer, an edge from each copy to the step that needs it and one from the last reader of its slot.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::bench {

struct Made {
  plan::Schedule schedule;
  std::vector<uint64_t> durations;
};

inline uint32_t add(Made &made, plan::Lane lane, uint64_t ns) {
  plan::Step step;
  step.kind = lane == plan::Lane::Compute ? plan::StepKind::Compute : plan::StepKind::Copy;
  step.lane = lane;
  step.linkBytes = lane == plan::Lane::Compute ? 0 : ns;
  made.schedule.steps.push_back(step);
  made.durations.push_back(ns);
  return static_cast<uint32_t>(made.schedule.steps.size() - 1);
}

// With `writeBack`, each offloaded layer also evicts something of a unit's size: both directions are at work.
inline Made decode(int layers, bool writeBack) {
  Made made;
  constexpr int kUnitStep[] = {1, 4, 6, 8}; // the linear ops of a layer's nine steps
  std::vector<uint32_t> lastReader(4, plan::kNone);
  for (int layer = 0; layer < layers; ++layer) {
    uint32_t copies[4];
    const bool offloaded = layer % 2 == 1;
    for (int unit = 0; offloaded && unit < 4; ++unit) {
      copies[unit] = add(made, plan::Lane::H2D, 700);
      if (lastReader[static_cast<size_t>(unit)] != plan::kNone)
        made.schedule.edges.push_back({lastReader[static_cast<size_t>(unit)], copies[unit], plan::EdgeKind::War});
    }
    for (int k = 0, unit = 0; k < 9; ++k) {
      const uint32_t step = add(made, plan::Lane::Compute, 100 + static_cast<uint64_t>(k));
      if (offloaded && unit < 4 && k == kUnitStep[unit]) {
        made.schedule.edges.push_back({copies[unit], step, plan::EdgeKind::Raw});
        lastReader[static_cast<size_t>(unit++)] = step;
      }
    }
    if (offloaded && writeBack) {
      const auto last = static_cast<uint32_t>(made.schedule.steps.size() - 1);
      made.schedule.edges.push_back({last, add(made, plan::Lane::D2H, 300), plan::EdgeKind::Raw});
    }
  }
  return made;
}

} // namespace headrace::bench
