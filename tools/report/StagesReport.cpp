// SPDX-License-Identifier: Apache-2.0
#include "tools/report/StagesReport.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "absl/strings/str_format.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/PlanFile.h"
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

// As many micro-batches as stages, and no more than sequences, each with its part of the batch: a token of all takes as
// many times the longest stage's iteration of that part, and no less than what one part takes through all stages.
struct Decode {
  int64_t microBatches = 1;
  double tokensPerSecond = 0;
};
Decode decodeOf(absl::Span<const plan::Plan *const> plans) {
  Decode decode;
  uint64_t longest = 0, all = 0;
  int64_t sequences = 0;
  for (const plan::Plan *plan : plans) {
    const std::vector<VariantReport> variants = reportVariants(*plan);
    const VariantReport *const largest = largestOf(*plan, variants).decode;
    if (largest == nullptr)
      return {};
    decode.microBatches = std::min(static_cast<int64_t>(plans.size()), largest->sequences);
    const int64_t part = (largest->sequences + decode.microBatches - 1) / decode.microBatches;
    sequences = largest->sequences * plan->miniBatches;
    uint64_t ns = largest->predictedNs;
    for (const VariantReport &variant : variants)
      if (const plan::Variant &of = plan->variants[variant.index];
          of.placement == 0 && of.sequences >= part && of.context == largest->context &&
          plan->schedules[of.schedule].iterationClass == plan::IterationClass::Decode)
        ns = std::min(ns, variant.predictedNs);
    longest = std::max(longest, ns);
    all += ns;
  }
  if (const uint64_t ns = std::max(static_cast<uint64_t>(decode.microBatches) * longest, all); ns > 0)
    decode.tokensPerSecond = static_cast<double>(sequences) * 1e9 / static_cast<double>(ns);
  return decode;
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
  if (const Decode decode = decodeOf(plans); plans.size() > 1)
    line("throughput",
         absl::StrFormat("%s tokens/s of decode: %s", formatRate(decode.tokensPerSecond),
                         decode.microBatches == 1
                             ? std::string("one micro-batch, through one stage behind the other")
                             : absl::StrFormat("%d micro-batches, each with its part of the batch, as long as the "
                                               "longest stage",
                                               decode.microBatches)));
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
  json["tokens_per_second"] = decodeOf(plans).tokensPerSecond;
  json["stages"] = std::move(stages);
  return json;
}

} // namespace headrace::tools
