// SPDX-License-Identifier: Apache-2.0
//
// What the steps of a launch take and move: of resizable copies what is in use of KV, or what the launch has written
// (core/InUse.h), of all others what the plan says.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/core/InUse.h"
#include "runtime/plan/Plan.h"

namespace headrace::tools {

struct LaunchedSteps {
  std::vector<uint64_t> ns;        // a step, alone on its lane
  std::vector<uint64_t> linkBytes; // a step, over the link
};

// Of one of the plan's variants, over a link of `linkBandwidth` bytes/s; 0: the plan's own.
LaunchedSteps launchedSteps(const plan::Plan &plan, uint32_t variant, double linkBandwidth,
                            const core::LaunchInUse &inUse);

// Whether launches of a schedule copy what is in use of KV.
bool copiesWhatIsInUse(const plan::Plan &plan, const plan::Schedule &schedule);
// Whether some of them copy to the host what they have written.
bool copiesWhatIsWritten(const plan::Schedule &schedule);

} // namespace headrace::tools
