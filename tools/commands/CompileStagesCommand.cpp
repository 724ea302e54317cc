// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/CompileStagesCommand.h"

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/StagesFile.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/ModelPath.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Terminal.h"
#include "tools/report/Format.h"
#include "tools/report/StagesReport.h"

namespace headrace::tools {
namespace {

using model::cat;

// 0: auto.
absl::StatusOr<int64_t> countOf(const std::string &text) {
  int64_t count = 0;
  if (text == "auto")
    return 0;
  if (!absl::SimpleAtoi(text, &count) || count < 1 || count > compiler::kMostStages)
    return badFlag("--stages", text, cat("a number of devices from 1 to ", compiler::kMostStages, ", or auto"));
  return count;
}

absl::Status checkStagedFlags(const CompileOptions &options) {
  for (const auto &[flag, given] : {std::pair("--dump-ir", !options.dumpIr.empty()),
                                    {"--explain", options.explain},
                                    {"--verify-weights", options.verifyWeights}})
    if (given)
      return badUsage(cat(flag, " beside --stages: expected one plan, of a whole model"));
  return absl::OkStatus();
}

} // namespace

absl::Status compileStagesCommand(const CompileOptions &options, const AssembledJob &assembled) {
  RETURN_IF_ERROR(checkStagedFlags(options));
  ASSIGN_OR_RETURN(count, countOf(*options.stages));
  Outputs outputs(options.overwrite);
  if (!options.dryRun) {
    outputs.add("--output", options.output, OutputKind::Stages);
    for (int64_t i = 0; i < (count == 0 ? compiler::kMostStages : count); ++i)
      outputs.add("--output", plan::stagePlanPath(options.output, static_cast<size_t>(i)), OutputKind::Plan);
  }
  outputs.addInputs(assembled.job.files);
  RETURN_IF_ERROR(outputs.check());
  absl::StatusOr<compiler::StagedPlans> made = compileStagesToHold(assembled, count);
  if (!made.ok())
    return aboutInput(assembled.input, made.status());
  if (!options.dryRun) {
    RETURN_IF_ERROR(outputs.check()); // the user's files may have changed meanwhile
    for (size_t i = 0; i < made->plans.size(); ++i) {
      const std::string path = plan::stagePlanPath(options.output, i);
      made->plans[i].modelPath = pathInPlan(made->plans[i].modelPath, path);
      RETURN_IF_ERROR(plan::writePlan(made->plans[i], path));
    }
    RETURN_IF_ERROR(outputs.write(options.output, plan::stagesText(made->plans, options.output)));
  }
  std::vector<const plan::Plan *> plans;
  std::vector<std::string> files;
  for (const plan::Plan &plan : made->plans) {
    if (!options.dryRun)
      files.push_back(plan::stagePlanPath(options.output, plans.size()));
    plans.push_back(&plan);
  }
  if (options.json)
    show(stagesReportJson(plans, made->reason, files).dump(1) + "\n", true);
  else
    show(stagesReportText(plans, made->reason,
                          options.dryRun ? "not written: dry run"
                                         : cat(oneLine(options.output), ", ", oneLine(files.front()),
                                               files.size() > 1 ? " and on" : "")),
         false);
  return absl::OkStatus();
}

} // namespace headrace::tools
