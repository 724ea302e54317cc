// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "runtime/plan/PlanFile.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Terminal.h"
#include "tools/report/InspectReport.h"
#include "tools/report/MappingReport.h"

namespace headrace::tools {

absl::Status inspectCommand(const InspectOptions &options) {
  absl::StatusOr<plan::Plan> plan = plan::readPlan(options.plan);
  if (!plan.ok())
    return plan.status();
  if (options.mapping) {
    show(options.json ? mappingJson(*plan) : mappingText(*plan, options.all), options.json);
    return absl::OkStatus();
  }
  show(options.json ? inspectJson(*plan, options.plan) : inspectText(*plan, options.plan, options.all), options.json);
  return absl::OkStatus();
}

} // namespace headrace::tools
