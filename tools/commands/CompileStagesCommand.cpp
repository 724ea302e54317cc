// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/CompileStagesCommand.h"

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/StagesFile.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/ModelPath.h"
#include "tools/commands/Outputs.h"
#include "tools/commands/Terminal.h"
#include "tools/report/Format.h"
#include "tools/report/InspectReport.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;
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

// The largest bucket that decodes, and that with prompts.
struct Shown {
  const VariantReport *decode = nullptr, *mixed = nullptr;
};
Shown shownOf(const plan::Plan &plan, const std::vector<VariantReport> &variants) {
  Shown shown;
  for (const VariantReport &variant : variants)
    if (plan.variants[variant.index].placement == 0)
      (plan.schedules[plan.variants[variant.index].schedule].iterationClass == plan::IterationClass::Decode
           ? shown.decode
           : shown.mixed) = &variant;
  return shown;
}

std::string layersText(const model::ModelSpec &spec) {
  return cat(spec.stage.first, " to ", spec.stage.first + spec.layers - 1);
}

std::string stagedText(const CompileOptions &options, const compiler::StagedPlans &made) {
  const plan::Plan &first = made.plans.front();
  std::string out;
  const auto line = [&](const char *name, const std::string &value) {
    absl::StrAppendFormat(&out, "%-14s %s\n", name, value);
  };
  const model::ModelSpec whole = model::wholeOf(first.model);
  line("model", cat(whole.name, ", ", whole.layers, " layers"));
  line("hardware", cat(first.hardware.name, ", ", made.plans.size(), made.plans.size() == 1 ? " device" : " devices"));
  line("why", made.reason);
  std::vector<std::vector<std::string>> rows = {
      {"stage", "layers", "offloaded", "device memory", "host memory", "decode", "with prompts", "limited by"}};
  for (size_t i = 0; i < made.plans.size(); ++i) {
    const plan::Plan &plan = made.plans[i];
    const std::vector<VariantReport> variants = reportVariants(plan);
    const Shown shown = shownOf(plan, variants);
    rows.push_back({cat(i), layersText(plan.model), describePlacement(plan, plan.placements.front()),
                    formatBytes(plan.arenaBytes), formatBytes(plan.hostBytes),
                    shown.decode ? formatNs(shown.decode->predictedNs) : "",
                    shown.mixed ? formatNs(shown.mixed->predictedNs) : "", plan.limitingResource});
  }
  line("plans", options.dryRun ? "not written: dry run"
                               : cat(oneLine(options.output), ", ", oneLine(plan::stagePlanPath(options.output, 0)),
                                     made.plans.size() > 1 ? " and on" : ""));
  return out + "\n" + formatTable(rows);
}

std::string stagedJson(const CompileOptions &options, const compiler::StagedPlans &made) {
  Json stages = Json::array();
  for (size_t i = 0; i < made.plans.size(); ++i) {
    const plan::Plan &plan = made.plans[i];
    const std::vector<VariantReport> variants = reportVariants(plan);
    const Shown shown = shownOf(plan, variants);
    Json stage = {
        {"first_layer", plan.model->stage.first}, {"layers", plan.model->layers},
        {"plan_hash", plan::planHash(plan)},      {"offloaded", describePlacement(plan, plan.placements.front())},
        {"device_bytes", plan.arenaBytes},        {"host_bytes", plan.hostBytes},
        {"limited_by", plan.limitingResource}};
    if (shown.decode)
      stage["decode_predicted_ns"] = shown.decode->predictedNs;
    if (shown.mixed)
      stage["mixed_predicted_ns"] = shown.mixed->predictedNs;
    if (!options.dryRun)
      stage["plan"] = plan::stagePlanPath(options.output, i);
    stages.push_back(std::move(stage));
  }
  const plan::Plan &first = made.plans.front();
  return Json{{"model", model::wholeOf(first.model).name},
              {"hardware", first.hardware.name},
              {"reason", made.reason},
              {"stages", std::move(stages)}}
             .dump(1) +
         "\n";
}

} // namespace

absl::Status compileStagesCommand(const CompileOptions &options, const AssembledJob &assembled) {
  RETURN_IF_ERROR(checkStagedFlags(options));
  ASSIGN_OR_RETURN(count, countOf(options.stages));
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
  show(options.json ? stagedJson(options, *made) : stagedText(options, *made), options.json);
  return absl::OkStatus();
}

} // namespace headrace::tools
