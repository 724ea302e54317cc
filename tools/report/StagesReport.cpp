// SPDX-License-Identifier: Apache-2.0
#include "tools/report/StagesReport.h"

#include <chrono>
#include <optional>

#include "absl/strings/str_format.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/sim/StagedTime.h"
#include "tools/report/Format.h"
#include "tools/report/InspectReport.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;
using model::cat;

// Of placement 0 the largest bucket that decodes, and that with prompts.
struct LargestVariants {
  const VariantReport *decode = nullptr, *mixed = nullptr;
};
LargestVariants largestOf(const plan::Plan &plan, const std::vector<VariantReport> &variants) {
  LargestVariants largest;
  for (const VariantReport &variant : variants)
    if (plan.variants[variant.index].placement == 0)
      (plan.schedules[plan.variants[variant.index].schedule].iterationClass == plan::IterationClass::Decode
           ? largest.decode
           : largest.mixed) = &variant;
  return largest;
}

// As "limited by" of a plan has it, and what it stands for.
struct LimitText {
  const char *name, *longAs;
};
LimitText textOf(sim::StagesLimit limit) {
  switch (limit) {
  case sim::StagesLimit::LongestStage:
    return {"longest stage", "the longest stage"};
  case sim::StagesLimit::OnePart:
    return {"one part", "one part's way through all stages"};
  case sim::StagesLimit::Cpu:
    return {"cpu", "all of them take of the CPU that stages share"};
  case sim::StagesLimit::HostMemory:
    return {"host memory", "all of them take of host memory, which stages share"};
  }
  return {};
}

std::string throughputText(const sim::StagedDecode &decode) {
  std::string how = "one micro-batch, through one stage behind the other";
  if (decode.microBatches > 1 || decode.limit != sim::StagesLimit::OnePart)
    how = absl::StrFormat("%d micro-batches, each with its part of the batch, as long as %s", decode.microBatches,
                          textOf(decode.limit).longAs);
  return absl::StrFormat("%s tokens/s of decode, a token of each sequence every %s: %s",
                         formatRate(decode.tokensPerSecond()), formatNs(decode.tokenNs), how);
}

// What each stage has a part of: the whole's, to a microsecond.
std::optional<std::chrono::nanoseconds> wholeOf(const std::optional<std::chrono::nanoseconds> &part, size_t stages) {
  if (!part)
    return std::nullopt;
  const std::chrono::nanoseconds all = *part * static_cast<int64_t>(stages);
  return stages == 1 ? all : std::chrono::round<std::chrono::microseconds>(all);
}

std::string objectiveText(const model::Goal &goal, size_t stages) {
  std::string text;
  for (const auto &[name, part] : {std::pair("TPOT ", goal.tpot), {"TTFT ", goal.ttft}})
    if (const auto all = wholeOf(part, stages))
      text += cat(text.empty() ? "" : ", ", name, model::durationText(*all));
  if (!text.empty() && stages > 1)
    text += cat("; each stage has 1/", stages);
  if (goal.sloFactor)
    text +=
        cat(text.empty() ? "" : "; ", formatRate(*goal.sloFactor), " times what each stage takes with nothing away");
  return text;
}

std::string rangeText(const model::ModelSpec &spec) {
  return cat(spec.stage.first, " to ", spec.stage.first + spec.layers - 1);
}

} // namespace

std::string stagesReportText(absl::Span<const plan::Plan *const> plans, const std::string &why,
                             const std::string &where) {
  const plan::Plan &first = *plans.front();
  std::string out;
  const auto line = [&](const char *name, const std::string &value) {
    if (!value.empty())
      absl::StrAppendFormat(&out, "%-14s %s\n", name, value);
  };
  const model::ModelSpec whole = model::wholeOf(first.model);
  line("model", cat(whole.name, ", ", whole.layers, " layers"));
  line("hardware", cat(first.hardware.name, ", ", plans.size(), plans.size() == 1 ? " device" : " devices"));
  line("why", why);
  line("objective", objectiveText(first.goal, plans.size()));
  if (plans.size() > 1)
    line("throughput", throughputText(sim::predictDecode(plans)));
  line("plans", where);
  std::vector<std::vector<std::string>> rows = {
      {"stage", "layers", "offloaded", "device memory", "host memory", "decode", "with prompts", "limited by"}};
  for (size_t i = 0; i < plans.size(); ++i) {
    const plan::Plan &plan = *plans[i];
    const std::vector<VariantReport> variants = reportVariants(plan);
    const LargestVariants largest = largestOf(plan, variants);
    rows.push_back({cat(i), rangeText(plan.model), describePlacement(plan, plan.placements.front()),
                    formatBytes(plan.arenaBytes), formatBytes(plan.hostBytes),
                    largest.decode ? formatNs(largest.decode->predictedNs) : "",
                    largest.mixed ? formatNs(largest.mixed->predictedNs) : "", plan.limitingResource});
  }
  return out + "\n" + formatTable(rows);
}

nlohmann::ordered_json stagesReportJson(absl::Span<const plan::Plan *const> plans, const std::string &why,
                                        absl::Span<const std::string> files) {
  Json stages = Json::array();
  for (size_t i = 0; i < plans.size(); ++i) {
    const plan::Plan &plan = *plans[i];
    const std::vector<VariantReport> variants = reportVariants(plan);
    const LargestVariants largest = largestOf(plan, variants);
    Json stage = {
        {"first_layer", plan.model->stage.first}, {"layers", plan.model->layers},
        {"plan_hash", plan::planHash(plan)},      {"offloaded", describePlacement(plan, plan.placements.front())},
        {"device_bytes", plan.arenaBytes},        {"host_bytes", plan.hostBytes},
        {"limited_by", plan.limitingResource}};
    if (largest.decode)
      stage["decode_predicted_ns"] = largest.decode->predictedNs;
    if (largest.mixed)
      stage["mixed_predicted_ns"] = largest.mixed->predictedNs;
    if (i < files.size())
      stage["plan"] = files[i];
    stages.push_back(std::move(stage));
  }
  const plan::Plan &first = *plans.front();
  Json json = {{"model", model::wholeOf(first.model).name}, {"hardware", first.hardware.name}};
  if (!why.empty())
    json["reason"] = why;
  for (const auto &[key, part] : {std::pair("tpot_ms", first.goal.tpot), {"ttft_ms", first.goal.ttft}})
    if (const auto all = wholeOf(part, plans.size()))
      json["objective"][key] = static_cast<double>(all->count()) / 1e6;
  const sim::StagedDecode decode = sim::predictDecode(plans);
  json["tokens_per_second"] = decode.tokensPerSecond();
  json["tpot_ms"] = static_cast<double>(decode.tokenNs) / 1e6;
  if (plans.size() > 1)
    json["limited_by"] = textOf(decode.limit).name;
  json["stages"] = std::move(stages);
  return json;
}

} // namespace headrace::tools
