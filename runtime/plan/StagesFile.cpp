// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/StagesFile.h"

#include <algorithm>

#include "absl/strings/strip.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/TomlReader.h"
#include "runtime/job/TomlText.h"
#include "runtime/model/KvEncoding.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"

namespace headrace::plan {
namespace {

constexpr int64_t kVersion = 1;

std::string layersText(const model::ModelSpec &spec) {
  return model::cat(spec.stage.first, " to ", spec.stage.first + spec.layers - 1);
}

// What a stage's plan has, as text, and what the first one has.
absl::Status checkAlike(size_t stage, const Plan &plan, const Plan &first) {
  const std::pair<const char *, std::pair<std::string, std::string>> figures[] = {
      {"a model of hash", {plan.modelHash, first.modelHash}},
      {"a model of shape",
       {model::toToml(model::shapeEntries(model::wholeOf(plan.model))),
        model::toToml(model::shapeEntries(model::wholeOf(first.model)))}},
      {"caches in", {model::encodingText(plan.kvEncoding), model::encodingText(first.kvEncoding)}},
      {"activations in",
       {std::string(model::dtypeName(plan.activationDtype)), std::string(model::dtypeName(first.activationDtype))}},
      {"a device of kind",
       {std::string(model::deviceKindName(plan.hardware.kind)),
        std::string(model::deviceKindName(first.hardware.kind))}},
      {"mini-batches", {model::cat(plan.miniBatches), model::cat(first.miniBatches)}},
      {"tokens a KV block", {model::cat(plan.blockTokens), model::cat(first.blockTokens)}},
      {"sequences at most", {model::cat(plan.metaLayout.maxSequences), model::cat(first.metaLayout.maxSequences)}},
      {"a context of", {model::cat(plan.maxContext), model::cat(first.maxContext)}},
      {"activation blocks", {model::cat(plan.actBlocks), "0"}}};
  for (const auto &[what, values] : figures)
    if (const auto &[has, wanted] = values; has != wanted)
      return absl::InvalidArgumentError(
          model::cat("stage ", stage, " has ", what, " ", has, ", expected ", wanted, " as the first"));
  return absl::OkStatus();
}

} // namespace

std::string stagePlanPath(const std::string &path, size_t stage) {
  return model::cat(absl::StripSuffix(path, ".stages"), ".", stage, ".plan");
}

std::string stagesText(absl::Span<const Plan> plans, const std::string &path) {
  std::string text =
      model::cat(kStagesMark, "version = ", kVersion, "\nmodel = ", model::tomlText(plans.front().model->name), "\n");
  for (size_t i = 0; i < plans.size(); ++i)
    text += model::cat("\n[[stage]]\nplan = ", model::tomlText(model::baseName(stagePlanPath(path, i))),
                       "\nlayers = \"", layersText(plans[i].model), "\"\n");
  return text;
}

absl::StatusOr<std::vector<std::string>> parseStages(std::string_view text, const std::string &path) {
  ASSIGN_OR_RETURN(document, model::parseToml(text, path));
  model::TomlReader file(document, path, "");
  if (file.text("format").value_or("") != "headrace stages")
    file.refuse("format", "\"headrace stages\"");
  else if (!file.integer("version", kVersion, kVersion))
    file.refuse("version", model::cat(kVersion));
  (void)file.text("model");
  const model::TomlValue *const stages = file.value("stage");
  if (stages == nullptr || stages->kind != model::TomlValue::Kind::Array || stages->items.empty())
    file.refuse("stage", "tables, [[stage]], one for each plan");
  RETURN_IF_ERROR(file.finish());
  std::vector<std::string> plans;
  for (const model::TomlValue &each : stages->items) {
    model::TomlReader stage(each, path, "stage");
    (void)stage.text("layers");
    const std::optional<std::string> plan = stage.text("plan");
    if (!plan || plan->empty())
      stage.refuse("plan", "a plan's file");
    RETURN_IF_ERROR(stage.finish());
    plans.push_back(model::joinPath(model::folderOf(path), *plan));
  }
  return plans;
}

absl::StatusOr<std::vector<StagePlan>> readStages(const std::string &path) {
  ASSIGN_OR_RETURN(text, model::readTextFile(path));
  ASSIGN_OR_RETURN(paths, parseStages(text, path));
  std::vector<StagePlan> stages;
  stages.reserve(paths.size());
  std::vector<const Plan *> plans;
  for (const std::string &each : paths) {
    ASSIGN_OR_RETURN(plan, readPlan(each));
    stages.push_back({each, std::move(plan)});
    plans.push_back(&stages.back().plan);
  }
  if (const absl::Status status = checkStages(plans); !status.ok())
    return absl::InvalidArgumentError(model::cat(path, ": ", status.message()));
  return stages;
}

absl::StatusOr<Plan> readWholePlan(const std::string &path) {
  if (const auto text = model::readTextFile(path, uint64_t{1} << 16); text.ok() && text->starts_with(kStagesMark))
    return absl::InvalidArgumentError(model::cat(
        path, ": a file of stages: expected a plan of a whole model; run, simulate and inspect take stages, too"));
  ASSIGN_OR_RETURN(plan, readPlan(path));
  if (plan.model->isStage())
    return absl::InvalidArgumentError(
        model::cat(path, ": a stage, layers ", layersText(plan.model), " of ", plan.model->stage.of,
                   ": expected a plan of a whole model, or the file of stages that names this one"));
  return plan;
}

absl::Status checkStages(absl::Span<const Plan *const> plans) {
  if (plans.empty())
    return absl::InvalidArgumentError("no stage: expected one at least");
  const Plan &first = *plans.front();
  const int64_t all = model::wholeOf(first.model).layers;
  int64_t layers = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    RETURN_IF_ERROR(checkAlike(i, *plans[i], first));
    const model::ModelSpec &spec = plans[i]->model;
    if (spec.stage.first != layers)
      return absl::InvalidArgumentError(
          model::cat("stage ", i, " has layers ", layersText(spec), ", expected from ", layers, " on"));
    layers += spec.layers;
  }
  if (layers != all)
    return absl::InvalidArgumentError(model::cat("stage ", plans.size(), " is missing: layers ", layers, " to ",
                                                 all - 1, " of ", first.model->name, " are in none"));
  return absl::OkStatus();
}

} // namespace headrace::plan
