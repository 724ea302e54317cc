// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/value/LimitedBy.h"

#include <algorithm>

namespace headrace::plan {

uint64_t cpuAloneNs(const Plan &plan, const Variant &variant) {
  if (plan.hardware.kind == model::DeviceKind::Host)
    return 0;
  const Schedule &schedule = plan.schedules[variant.schedule];
  uint64_t sum = 0;
  for (size_t i = 0; i < schedule.steps.size(); ++i)
    if (schedule.steps[i].lane == Lane::Cpu)
      sum += variant.durationsNs[i];
  return sum;
}

std::string limitedBy(const Plan &plan, const Variant &variant) {
  if (cpuAloneNs(plan, variant) > std::max(variant.computeAloneNs, variant.linkAloneNs))
    return "cpu";
  return variant.linkAloneNs > variant.computeAloneNs ? "link h2d" : "compute";
}

} // namespace headrace::plan
