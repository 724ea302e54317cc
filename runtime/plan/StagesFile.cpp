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

// The first figure of the hardware that differs.
absl::Status checkHardware(size_t stage, const Plan &plan, const Plan &first) {
  const model::TomlEntries wanted = model::hardwareEntries(first.hardware), has = model::hardwareEntries(plan.hardware);
  const auto valueOf = [](const model::TomlEntries &entries, const std::string &key) {
    const auto at = std::find_if(entries.begin(), entries.end(), [&](const auto &entry) { return entry.first == key; });
    return at == entries.end() ? std::string("none") : at->second;
  };
  for (const model::TomlEntries *of : {&wanted, &has})
    for (const auto &[key, value] : *of)
      if (valueOf(has, key) != valueOf(wanted, key))
        return absl::InvalidArgumentError(model::cat("stage ", stage, " has a device of ", key, " = ",
                                                     valueOf(has, key), ", expected ", valueOf(wanted, key),
                                                     " as the first"));
  return absl::OkStatus();
}

// That the plans are what the file says that they are.
absl::Status checkSaid(const NamedStages &named, absl::Span<const StagePlan> stages) {
  if (const std::string &name = stages.front().plan.model->name; !named.model.empty() && named.model != name)
    return absl::InvalidArgumentError(model::cat("model = ", model::tomlText(named.model), ": the plans are of ", name,
                                                 ": expected that name, or none"));
  for (size_t i = 0; i < stages.size(); ++i)
    if (const std::string has = layersText(stages[i].plan.model), &says = named.stages[i].layers;
        !says.empty() && says != has)
      return absl::InvalidArgumentError(model::cat("stage ", i, ": layers = ", model::tomlText(says), ": ",
                                                   stages[i].path, " has ", has, ": expected these, or none"));
  return absl::OkStatus();
}

std::string weightsText(const model::ModelSpec &spec) {
  return spec.encodings.any() ? model::weightEncodingText(spec) : std::string("the checkpoint's type");
}

// What a stage's plan has, as text, and what the first one has.
absl::Status checkAlike(size_t stage, const Plan &plan, const Plan &first) {
  const std::pair<const char *, std::pair<std::string, std::string>> figures[] = {
      {"the model", {plan.model->name, first.model->name}},
      {"weights in", {weightsText(plan.model), weightsText(first.model)}},
      {"a model of hash", {plan.modelHash, first.modelHash}},
      {"a model of shape",
       {model::toToml(model::shapeEntries(model::wholeOf(plan.model))),
        model::toToml(model::shapeEntries(model::wholeOf(first.model)))}},
      {"a device of kind",
       {std::string(model::deviceKindName(plan.hardware.kind)),
        std::string(model::deviceKindName(first.hardware.kind))}},
      {"caches in", {model::encodingText(plan.kvEncoding), model::encodingText(first.kvEncoding)}},
      {"activations in",
       {std::string(model::dtypeName(plan.activationDtype)), std::string(model::dtypeName(first.activationDtype))}},
      {"mini-batches", {model::cat(plan.miniBatches), model::cat(first.miniBatches)}},
      {"tokens a KV block", {model::cat(plan.blockTokens), model::cat(first.blockTokens)}},
      {"sequences at most", {model::cat(plan.metaLayout.maxSequences), model::cat(first.metaLayout.maxSequences)}},
      {"a context of", {model::cat(plan.maxContext), model::cat(first.maxContext)}},
      {"activation blocks", {model::cat(plan.actBlocks), "0"}}};
  for (const auto &[what, values] : figures)
    if (const auto &[has, wanted] = values; has != wanted)
      return absl::InvalidArgumentError(
          model::cat("stage ", stage, " has ", what, " ", has, ", expected ", wanted, " as the first"));
  return checkHardware(stage, plan, first);
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

absl::StatusOr<NamedStages> parseStages(std::string_view text, const std::string &path) {
  ASSIGN_OR_RETURN(document, model::parseToml(text, path));
  model::TomlReader file(document, path, "");
  if (file.text("format").value_or("") != "headrace stages")
    file.refuse("format", "\"headrace stages\"");
  else if (!file.integer("version", kVersion, kVersion))
    file.refuse("version", model::cat(kVersion));
  NamedStages named;
  named.model = file.text("model").value_or("");
  const model::TomlValue *const stages = file.value("stage");
  if (stages == nullptr || stages->kind != model::TomlValue::Kind::Array || stages->items.empty())
    file.refuse("stage", "tables, [[stage]], one for each plan");
  RETURN_IF_ERROR(file.finish());
  for (const model::TomlValue &each : stages->items) {
    model::TomlReader stage(each, path, "stage");
    const std::string layers = stage.text("layers").value_or("");
    const std::optional<std::string> plan = stage.text("plan");
    if (!plan || plan->empty())
      stage.refuse("plan", "a plan's file");
    RETURN_IF_ERROR(stage.finish());
    named.stages.push_back({model::joinPath(model::folderOf(path), *plan), layers});
  }
  return named;
}

absl::StatusOr<std::vector<StagePlan>> readStages(const std::string &path) {
  ASSIGN_OR_RETURN(text, model::readTextFile(path));
  ASSIGN_OR_RETURN(named, parseStages(text, path));
  std::vector<StagePlan> stages;
  stages.reserve(named.stages.size());
  std::vector<const Plan *> plans;
  for (const NamedStages::Stage &each : named.stages) {
    absl::StatusOr<Plan> plan = readPlan(each.path);
    if (!plan.ok()) // it names the plan's file
      return absl::Status(plan.status().code(),
                          model::cat(path, ": stage ", stages.size(), ": ", plan.status().message()));
    stages.push_back({each.path, *std::move(plan)});
    plans.push_back(&stages.back().plan);
  }
  absl::Status status = checkStages(plans);
  if (status.ok())
    status = checkSaid(named, stages);
  if (!status.ok())
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
