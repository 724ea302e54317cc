// SPDX-License-Identifier: Apache-2.0
//
// Plans that devices can run whose tails of caches are moved as a test says: TinyPlan's, with WriteBackPlan's moves.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/support/TinyPlan.h"
#include "tests/unit/plan/WriteBackPlan.h"

namespace headrace::core {

using plan::test::Phase;
using plan::test::Tails;
using plan::test::WriteBack;

inline std::string nameOf(WriteBack how) {
  return how == WriteBack::Mirror ? "mirror" : how == WriteBack::All ? "all" : "dirty";
}

// Of one placement, but for how many blocks there are.
inline Tails tailsOf(int64_t resident, uint32_t slots, WriteBack how, std::vector<Phase> phases) {
  Tails tails;
  tails.resident = resident;
  tails.slots = slots;
  tails.mirror = how == WriteBack::Mirror;
  tails.phases = std::move(phases);
  return tails;
}

// tinyPlan() of these options, which offload nothing, with a placement for each of `placements`: of all blocks those
// that it says are resident are on the device.
inline plan::Plan tailPlan(const TinyPlanOptions &options, std::vector<Tails> placements) {
  plan::Plan plan = tinyPlan(options);
  // Room for the blocks on the device before everything else.
  int64_t most = 0;
  for (Tails &tails : placements) {
    tails.blocks = plan.kvBlocks;
    most = std::max(most, tails.resident);
  }
  const uint64_t region = model::alignUp(static_cast<uint64_t>(most) * plan.kvStride());
  plan.arenaBytes += region;
  for (plan::Extent &extent : plan.placements[0].extents)
    extent.address += region;
  for (plan::Schedule &schedule : plan.schedules) {
    for (plan::Operand &operand : schedule.operands)
      operand.address += region;
    for (plan::Local &local : schedule.locals)
      local.address += region;
  }
  const std::vector<plan::Schedule> schedules = plan.schedules;
  const std::vector<plan::Variant> variants = plan.variants;
  for (uint32_t p = 1; p < placements.size(); ++p) {
    const auto first = static_cast<uint32_t>(plan.schedules.size());
    plan.placements.push_back(plan.placements[0]);
    plan.placements.back().name += " " + std::to_string(p);
    for (plan::Schedule schedule : schedules) {
      schedule.placement = p;
      plan.schedules.push_back(std::move(schedule));
    }
    for (plan::Variant variant : variants) {
      variant.placement = p;
      variant.schedule += first;
      plan.variants.push_back(std::move(variant));
    }
  }
  plan::test::moveTails(plan, placements);
  plan.hardware.memoryBytes = plan.hardware.hostMemoryBytes = uint64_t{1} << 32;
  return plan;
}
inline plan::Plan tailPlan(const TinyPlanOptions &options, int64_t resident, uint32_t slots, WriteBack how,
                           std::vector<Phase> phases) {
  return tailPlan(options, {tailsOf(resident, slots, how, std::move(phases))});
}

// As many places as phases, for one layer more: visit k * layers + l, of layer l in iteration k, is in the place of
// that number, round and round, so that every tail is brought in each iteration, to another place than in the one
// before. The first one or two of an iteration are there when it starts. All: a tail goes back when its place is given
// up, those of the last layers in the iteration behind.
//
//   4 places, 5 layers    place 0   1   2   3
//   phase 0               0 . . 4   1   2   3     brought behind layer 0: 4; behind 1 and 2: 0 and 1 for phase 1
//   phase 1               .. 3      0   1   2
inline std::vector<Phase> goingRound(uint32_t places, WriteBack how) {
  const auto layers = static_cast<int32_t>(places + 1), there = std::min<int32_t>(static_cast<int32_t>(places) - 1, 2);
  std::vector<Phase> phases(places);
  for (uint32_t p = 0; p < places; ++p) {
    Phase &phase = phases[p];
    const auto placeOf = [&](int32_t visit) {
      return (p * static_cast<uint32_t>(layers) + static_cast<uint32_t>(visit)) % places;
    };
    const auto last = static_cast<int32_t>(places);
    for (int32_t l = 0; l < there; ++l)
      phase.entry.push_back({l, placeOf(l)});
    for (int32_t l = there; l < last; ++l) {
      if (how == WriteBack::All) { // what the iteration before has left there is of the layer behind
        phase.entry.push_back({l + 1, placeOf(l), true});
        phase.moves.push_back({-1, true, l + 1, placeOf(l)});
      }
      phase.moves.push_back({-1, false, l, placeOf(l)});
    }
    std::sort(phase.entry.begin(), phase.entry.end(), [](const auto &a, const auto &b) { return a.slot < b.slot; });
    for (int32_t l = 0; l < layers; ++l) {
      const bool givenUp = l <= there;
      if (how == WriteBack::Dirty || (how == WriteBack::All && givenUp))
        phase.moves.push_back({l, true, l, placeOf(l), how == WriteBack::Dirty});
      if (givenUp)
        phase.moves.push_back({l, false, (l + last) % layers, placeOf(l)});
    }
  }
  return phases;
}

} // namespace headrace::core
