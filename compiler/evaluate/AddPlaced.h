// SPDX-License-Identifier: Apache-2.0
//
// A candidate that was placed, in a plan: the placement, its schedules with their copies and edges, and a variant for
// each bucket. What is not there is what compute steps use, but for homes over the link.
#pragma once

#include "compiler/evaluate/PlaceCandidate.h"
#include "compiler/evaluate/PlanWriter.h"

namespace headrace::compiler {

void addPlaced(PlanWriter &writer, Iterations &iterations, const PlacedCandidate &placed);

} // namespace headrace::compiler
