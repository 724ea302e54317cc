// SPDX-License-Identifier: Apache-2.0
//
// What a schedule's steps take beside each other, from what each takes alone (cost::Interference).
//
//   alone     compute  [ L0 ][ L1 ]....[ L2 ]        beside  compute  [ L0  ][ L1  ].....[ L2 ]
//             h2d      [   L2   ]                            h2d      [   L2   ]
//                           [  next, waits for L0 ]                   +[  next, waits for L0 ]
//
// Compute steps are stretched for the part of them during which a copy runs; a copy that waits for a compute step with
// its lane idle starts a little after that step's end, which its duration is made to include; so does the first step of
// a lane that waited for another one to end the iteration before. All is taken from the timeline of the durations
// alone; the schedule is then played again with those that this gives.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/cost/CostModel.h"
#include "runtime/plan/value/Plan.h"
#include "runtime/sim/Simulator.h"

namespace headrace::compiler {

// `alone` is the timeline of `durationsNs`. False, and nothing changed, where nothing interferes.
bool interfere(const plan::Schedule &schedule, const cost::Interference &interference, const sim::Timeline &alone,
               std::vector<uint64_t> &durationsNs);

} // namespace headrace::compiler
