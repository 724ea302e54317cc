// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "absl/strings/str_join.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/StagesFile.h"
#include "tools/commands/Commands.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/LoadedStages.h"
#include "tools/commands/Terminal.h"
#include "tools/report/InspectReport.h"
#include "tools/report/MappingReport.h"
#include "tools/report/StagesReport.h"

namespace headrace::tools {

namespace {

absl::Status inspectStages(const InspectOptions &options) {
  if (options.mapping)
    return badUsage("--mapping of stages: expected one of their plans");
  ASSIGN_OR_RETURN(stages, plan::readStages(options.plan));
  std::vector<const plan::Plan *> plans;
  std::vector<std::string> files;
  for (const plan::StagePlan &stage : stages) {
    plans.push_back(&stage.plan);
    files.push_back(stage.path);
  }
  if (options.json) {
    nlohmann::ordered_json json = stagesReportJson(plans, "", files);
    for (size_t i = 0; i < plans.size(); ++i)
      json["stages"][i]["inspect"] = nlohmann::ordered_json::parse(inspectJson(*plans[i], files[i]));
    show(json.dump(1) + "\n", true);
    return absl::OkStatus();
  }
  std::string text = stagesReportText(plans, "", absl::StrJoin(files, ", "));
  for (size_t i = 0; i < plans.size() && options.all; ++i)
    text += model::cat("\nstage ", i, "\n\n", inspectText(*plans[i], files[i], options.all));
  show(options.all ? text : text + "\n--all shows each stage's plan, too\n", false);
  return absl::OkStatus();
}

} // namespace

absl::Status inspectCommand(const InspectOptions &options) {
  if (isStagesFile(options.plan))
    return inspectStages(options);
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
