// SPDX-License-Identifier: Apache-2.0
#include "tools/report/ChoiceReport.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/base/Text.h"
#include "runtime/base/Units.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/value/PlacementTable.h"
#include "runtime/sim/TokenGaps.h"
#include "tools/report/Format.h"
#include "tools/report/InspectReport.h"
#include "tools/report/MovedBytes.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string signedBytes(int64_t bytes) {
  return bytes < 0 ? "-" + formatBytes(static_cast<uint64_t>(-bytes)) : formatBytes(static_cast<uint64_t>(bytes));
}

cost::PaperFormula formulaOf(const plan::Plan &plan, const plan::BucketChoice &choice) {
  if (choice.sloNs == 0 || choice.layerTransferNs == 0 || choice.residentNs == 0)
    return {};
  const cost::LayerTimes times{plan.model->layers, static_cast<double>(choice.layerComputeNs),
                               static_cast<double>(choice.layerTransferNs), 0};
  return cost::paperFormula(times, static_cast<double>(choice.sloNs) / static_cast<double>(choice.residentNs) - 1);
}

constexpr int kGapColumn = 10; // behind "predicted"

std::string intervalName(int64_t interval) { return interval == 0 ? "none" : model::cat(interval); }

bool printsFormula(const plan::Plan &plan) { return compiler::policyNamed(plan.policy.name).printsFormula; }

} // namespace

std::vector<ChoiceReport> reportChoices(const plan::Plan &plan) {
  std::vector<ChoiceReport> reports;
  std::vector<sim::TokenGaps::Longest> gaps(plan.choices.size());
  if (plan.goal.instances == model::Instances::Together) {
    std::vector<uint32_t> chosen;
    for (const plan::BucketChoice &choice : plan.choices)
      chosen.push_back(choice.variant);
    gaps = sim::TokenGaps(plan).longest(chosen);
  }
  for (const plan::BucketChoice &choice : plan.choices) {
    const plan::Variant &variant = plan.variants[choice.variant];
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    ChoiceReport r;
    r.variant = choice.variant;
    r.decode = schedule.iterationClass == plan::IterationClass::Decode;
    r.newTokens = variant.newTokens;
    r.sequences = variant.sequences;
    r.context = variant.context;
    r.placement = variant.placement;
    r.freedBytes = plan::freedBytes(plan, variant.placement);
    r.movedBytes = movedBytes(plan, variant).h2d;
    r.predictedNs = variant.predictedNs;
    r.gapNs = gaps[reports.size()].ns;
    r.sloNs = choice.sloNs;
    r.residentNs = choice.residentNs;
    r.ratio = choice.sloNs == 0 ? 0 : static_cast<double>(r.predictedNs) / static_cast<double>(r.sloNs);
    r.layerComputeNs = choice.layerComputeNs;
    r.layerTransferNs = choice.layerTransferNs;
    r.formula = formulaOf(plan, choice);
    reports.push_back(r);
  }
  return reports;
}

std::string describeGoal(const plan::Plan &plan) {
  std::string text = plan.policy.name;
  if (plan.goal.sloFactor)
    absl::StrAppendFormat(&text, ", %g x the iteration without offloading", *plan.goal.sloFactor);
  if (plan.goal.ttft)
    text += model::cat(", TTFT ", model::durationText(*plan.goal.ttft), " of a prompt of ",
                       plan.goal.promptLength(plan.maxContext), " tokens");
  if (plan.goal.tpot)
    text += ", TPOT " + model::durationText(*plan.goal.tpot);
  if (plan.goal.instances == model::Instances::Apart)
    text += ", prefill and decode on instances apart";
  if (plan.goal.busDevices > 1)
    text += model::cat(", ", plan.goal.busDevices, " devices on the bus");
  return text;
}

std::string choicesText(const plan::Plan &plan, bool all) {
  const bool formula = printsFormula(plan);
  std::vector<std::vector<std::string>> table = {{"choice", "tokens", "seqs", "context", "placement", "interval", "off",
                                                  "freed", "moved/iter", "predicted", "SLO", "ratio", "resident"}};
  const std::vector<ChoiceReport> reports = reportChoices(plan);
  const bool gaps = std::any_of(reports.begin(), reports.end(), [](const ChoiceReport &r) { return r.gapNs > 0; });
  const auto addGap = [&](std::vector<std::string> &row, std::string text) {
    if (gaps)
      row.insert(row.begin() + kGapColumn, std::move(text));
  };
  addGap(table[0], "gap");
  if (formula)
    for (const char *column : {"t_c", "t_t", "printed: off", "interval", "x L: off", "interval"})
      table[0].emplace_back(column);
  for (const ChoiceReport &r : reports) {
    const plan::Placement &placement = plan.placements[r.placement];
    table.push_back({r.decode ? "decode" : "prefill, mixed", model::cat(r.newTokens), model::cat(r.sequences),
                     model::cat(r.context), placement.name,
                     placement.interval > 0 ? model::cat(placement.interval) : std::string("-"),
                     model::cat(plan::offloadedWeights(plan, placement).layers), signedBytes(r.freedBytes),
                     formatBytes(r.movedBytes), formatNs(r.predictedNs), r.sloNs == 0 ? "none" : formatNs(r.sloNs),
                     r.sloNs == 0 ? std::string("-") : absl::StrFormat("%.3f", r.ratio), formatNs(r.residentNs)});
    addGap(table.back(), r.gapNs == 0 ? std::string("-") : formatNs(r.gapNs));
    if (formula)
      for (const std::string &value : {formatNs(r.layerComputeNs), formatNs(r.layerTransferNs),
                                       model::cat(r.formula.offloadPrinted), intervalName(r.formula.intervalPrinted),
                                       model::cat(r.formula.offloadTimesL), intervalName(r.formula.intervalTimesL)})
        table.back().push_back(value);
  }
  return table.size() == 1 ? std::string() : foldTable(table, all, "choices", kShowAll);
}

Json objectiveJson(const plan::Plan &plan) {
  Json json = Json::object();
  if (plan.goal.ttft)
    json.update({{"ttft_ns", plan.goal.ttft->count()}, {"input_len", plan.goal.promptLength(plan.maxContext)}});
  if (plan.goal.tpot)
    json["tpot_ns"] = plan.goal.tpot->count();
  if (plan.goal.sloFactor)
    json["slo_factor"] = *plan.goal.sloFactor;
  json["instances"] = model::instancesName(plan.goal.instances);
  json["bus_devices"] = plan.goal.busDevices;
  if (!plan.goal.record.empty())
    json["record"] = plan.goal.record;
  return json;
}

Json choicesJson(const plan::Plan &plan) {
  Json choices = Json::array();
  for (const ChoiceReport &r : reportChoices(plan)) {
    const plan::Placement &placement = plan.placements[r.placement];
    const int32_t offloadedLayers = plan::offloadedWeights(plan, placement).layers;
    Json one = {{"class", r.decode ? "decode" : "mixed"},
                {"new_tokens", r.newTokens},
                {"sequences", r.sequences},
                {"context", r.context},
                {"variant", r.variant},
                {"placement", placement.name},
                {"placement_index", r.placement},
                {"interval", placement.interval > 0 ? Json(placement.interval)
                             : offloadedLayers == 0 ? Json("none")
                                                    : Json(nullptr)},
                {"offloaded_layers", offloadedLayers},
                {"freed_bytes", r.freedBytes},
                {"moved_bytes", r.movedBytes},
                {"predicted_ns", r.predictedNs},
                {"longest_gap_ns", r.gapNs == 0 ? Json(nullptr) : Json(r.gapNs)},
                {"slo_ns", r.sloNs == 0 ? Json(nullptr) : Json(r.sloNs)},
                {"slo_ratio", r.sloNs == 0 ? Json(nullptr) : Json(r.ratio)},
                {"resident_ns", r.residentNs},
                {"layer_compute_ns", r.layerComputeNs},
                {"layer_transfer_ns", r.layerTransferNs}};
    if (printsFormula(plan))
      one["printed_formula"] = {{"offload", r.formula.offloadPrinted},
                                {"interval", r.formula.intervalPrinted},
                                {"offload_times_layers", r.formula.offloadTimesL},
                                {"interval_times_layers", r.formula.intervalTimesL}};
    choices.push_back(std::move(one));
  }
  return choices;
}

} // namespace headrace::tools
