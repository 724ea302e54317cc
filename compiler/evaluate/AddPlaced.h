// SPDX-License-Identifier: Apache-2.0
//
// A candidate that was placed, in a plan: the placement, its schedules with their copies and edges, and a variant for
// each bucket. What is not there is what compute steps use, but for homes over the link.
#pragma once

#include "compiler/evaluate/PlaceCandidate.h"
#include "compiler/evaluate/PlanWriter.h"

namespace headrace::compiler {

// What the placement says, but for its states. Before it is laid out: without addresses.
plan::Placement placementOf(const Iterations &iterations, const plan::Plan &plan, const PlacedCandidate &placed);

// The schedule of one of its iterations, a site for each step, and what slots hold at its edges. Before it is laid out:
// without addresses, and what has none but an address.
struct PlacedSchedule {
  plan::Schedule schedule;
  std::vector<std::optional<cost::OpSite>> sites;
  std::vector<plan::Content> entry, exit;
};
PlacedSchedule scheduleOf(const Iterations &iterations, const plan::Plan &plan, const PlacedCandidate &placed,
                          size_t iteration, uint32_t placement);

void addPlaced(PlanWriter &writer, Iterations &iterations, const PlacedCandidate &placed);

} // namespace headrace::compiler
