// SPDX-License-Identifier: Apache-2.0
#include "tools/report/DriftReport.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "runtime/base/Text.h"
#include "tools/report/Format.h"
#include "tools/timeline/LineChart.h"

namespace headrace::tools {
namespace {

using model::cat;
using Json = nlohmann::ordered_json;

std::string figure(double value) { return absl::StrFormat("%.4g", value); }

std::string sideText(const DriftSide &side) {
  return cat("weights ", side.weights, ", ", formatBytes(side.weightBytes), "; KV ", side.kv);
}

std::string placeText(const PositionDrift &at) { return cat("prompt ", at.prompt, ", position ", at.position); }

Json sideJson(const DriftSide &side) {
  return {{"weights", side.weights}, {"weight_bytes", side.weightBytes}, {"kv_dtype", side.kv}};
}

Json positionJson(const PositionDrift &at) {
  Json out = {{"prompt", at.prompt},
              {"position", at.position},
              {"logit_error", {{"mean", at.mean}, {"largest", at.largest}, {"token", at.largestToken}}},
              {"kl", at.kl},
              {"same_first_token", at.sameFirst}};
  if (at.fullLoss && at.packedLoss)
    out["loss"] = {{"packed", *at.packedLoss}, {"full", *at.fullLoss}};
  return out;
}

std::string eachTable(const std::vector<PositionDrift> &positions) {
  std::vector<std::vector<std::string>> rows = {
      {"prompt", "position", "logit error: mean", "largest", "of token", "KL", "first token"}};
  for (const PositionDrift &at : positions)
    rows.push_back({cat(at.prompt), cat(at.position), figure(at.mean), figure(at.largest), cat(at.largestToken),
                    figure(at.kl), at.sameFirst ? "same" : "other"});
  return formatTable(rows);
}

} // namespace

std::string DriftReport::text(bool each) const {
  const DriftSummary sum = summaryOf(positions);
  std::string out;
  const auto line = [&](const char *name, const std::string &value) {
    absl::StrAppendFormat(&out, "%-16s %s\n", name, value);
  };
  line("model", model + " on " + hardware);
  line("device", device);
  line("packed", sideText(packed));
  line("full precision", sideText(full));
  line("positions", cat(sum.positions, " of ", prompts, prompts == 1 ? " prompt" : " prompts"));
  line("logit error", cat("mean ", figure(sum.meanError), ", largest ", figure(sum.error->largest), " (",
                          placeText(*sum.error), ", token ", sum.error->largestToken, ")"));
  line("KL", cat("mean ", figure(sum.meanKl), " nats, largest ", figure(sum.kl->kl), " (", placeText(*sum.kl), ")"));
  line("first token", absl::StrFormat("the same at %.2f%% of positions (%d of %d)", 100 * sum.firstShare(),
                                      sum.sameFirst, sum.positions));
  line("perplexity", cat(figure(sum.packed), " packed, ", figure(sum.full),
                         " in full precision: ", absl::StrFormat("%.4f", sum.packed / sum.full), " x"));
  return each ? out + "\n" + eachTable(positions) : out;
}

std::string DriftReport::json(bool each) const {
  const DriftSummary sum = summaryOf(positions);
  Json out = {
      {"model", model},
      {"hardware", hardware},
      {"device", device},
      {"packed", sideJson(packed)},
      {"full_precision", sideJson(full)},
      {"prompts", prompts},
      {"positions", sum.positions},
      {"logit_error",
       {{"mean", sum.meanError},
        {"largest", sum.error->largest},
        {"prompt", sum.error->prompt},
        {"position", sum.error->position},
        {"token", sum.error->largestToken}}},
      {"kl",
       {{"mean", sum.meanKl}, {"largest", sum.kl->kl}, {"prompt", sum.kl->prompt}, {"position", sum.kl->position}}},
      {"first_token", {{"same", sum.sameFirst}, {"share", sum.firstShare()}}},
      {"perplexity",
       {{"tokens", sum.predicted}, {"packed", sum.packed}, {"full", sum.full}, {"ratio", sum.packed / sum.full}}}};
  if (each)
    for (const PositionDrift &at : positions)
      out["each"].push_back(positionJson(at));
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string DriftReport::svg() const {
  const DriftSummary sum = summaryOf(positions);
  LineChart chart;
  chart.title = cat("drift of ", model, ": ", packed.weights, " against ", full.weights);
  chart.subtitle = cat(sum.positions, " positions of ", prompts, prompts == 1 ? " prompt" : " prompts",
                       "; a point is of those with more than half as many tokens, up to as many; device ", device);
  chart.xName = "tokens up to the position";
  const std::vector<DriftBin> bins = binsOf(positions);
  std::vector<DriftSummary> sums;
  for (const DriftBin &bin : bins) {
    chart.x.push_back(static_cast<double>(bin.most));
    sums.push_back(summaryOf(bin.positions));
  }
  const auto line = [&](std::string name, size_t colour, auto value) {
    Line out{std::move(name), {}, colour};
    for (const DriftSummary &one : sums)
      out.values.push_back(value(one));
    return out;
  };
  using Value = std::optional<double>;
  chart.panels = {
      {.title = "error of a logit",
       .lines = {line("largest", 2, [](const DriftSummary &s) -> Value { return s.largestErrors; }),
                 line("mean", 0, [](const DriftSummary &s) -> Value { return s.meanError; })},
       .spreads = true},
      {.title = "KL, nats",
       .lines = {line("largest", 2, [](const DriftSummary &s) -> Value { return s.kl->kl; }),
                 line("mean", 0, [](const DriftSummary &s) -> Value { return s.meanKl; })},
       .spreads = true},
      {.title = "the same first token, % of positions",
       .lines = {line("same", 4, [](const DriftSummary &s) -> Value { return 100 * s.firstShare(); })}},
      {.title = "perplexity",
       .lines = {line("packed", 1, [](const DriftSummary &s) { return s.predicted == 0 ? Value() : Value(s.packed); }),
                 line("full precision", 5,
                      [](const DriftSummary &s) { return s.predicted == 0 ? Value() : Value(s.full); })},
       .spreads = true}};
  return lineChartSvg(chart);
}

} // namespace headrace::tools
