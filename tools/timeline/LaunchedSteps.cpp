// SPDX-License-Identifier: Apache-2.0
#include "tools/timeline/LaunchedSteps.h"

#include <algorithm>

#include "runtime/sim/SimDevice.h"
#include "runtime/sim/TimedSchedule.h"
#include "tools/report/MovedBytes.h"

namespace headrace::tools {

LaunchedSteps launchedSteps(const plan::Plan &plan, uint32_t index, double linkBandwidth,
                            const core::LaunchInUse &inUse) {
  const plan::Variant &variant = plan.variants[index];
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  LaunchedSteps launched;
  launched.ns = sim::pacedDurations(schedule, variant.durationsNs, plan.hardware, linkBandwidth);
  for (const plan::Step &step : schedule.steps)
    launched.linkBytes.push_back(step.linkBytes);
  const absl::StatusOr<std::vector<sim::SizedTime>> sized =
      sim::sizedTimes(plan, schedule, launched.ns, variant.newTokens, sim::linkRates(plan.hardware, linkBandwidth));
  if (!sized.ok()) // no device builds such a schedule: there is no launch
    return launched;
  for (const sim::SizedTime &copy : *sized) {
    const uint64_t bytes = core::bytesInUse(copy.size, inUse);
    launched.ns[copy.step] = copy.nsOf(bytes);
    launched.linkBytes[copy.step] = bytes;
  }
  return launched;
}

bool copiesWhatIsInUse(const plan::Plan &plan, const plan::Schedule &schedule) {
  return std::any_of(schedule.steps.begin(), schedule.steps.end(),
                     [&](const plan::Step &step) { return step.resizable && !movesResidual(plan, schedule, step); });
}

bool copiesWhatIsWritten(const plan::Schedule &schedule) {
  return std::any_of(schedule.steps.begin(), schedule.steps.end(),
                     [](const plan::Step &step) { return step.dirtyOnly; });
}

} // namespace headrace::tools
