// SPDX-License-Identifier: Apache-2.0
#include "tools/report/BenchReport.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "compiler/search/generators/Generators.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "tools/report/Format.h"
#include "tools/timeline/BarChart.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;
using Phase = std::optional<BenchPhase> BenchRow::*;

double ms(double ns) { return ns / 1e6; }
double ms(int64_t ns) { return ms(static_cast<double>(ns)); }

Json phaseJson(const std::optional<BenchPhase> &maybe) {
  if (!maybe)
    return nullptr;
  const BenchPhase &p = *maybe;
  if (!p.refused.empty())
    return {{"batch", p.batch}, {"refused", p.refused}};
  const auto known = [](double ns) { return ns > 0 ? Json(ms(ns)) : Json(nullptr); };
  return {{"batch", p.batch},
          {"refused", nullptr},
          {"plan_hash", p.planHash},
          {"compiled", "headrace compile " + p.compiled},
          {"placement", p.placement},
          {"offloaded_layers", p.layers},
          {"p50_ms", ms(p.time.p50Ns)},
          {"p99_ms", ms(p.time.p99Ns)},
          {"samples", p.samples},
          {"slo_ms", known(p.sloNs)},
          {"resident_ms", known(p.residentNs)},
          {"predicted_ms", ms(p.predictedNs)},
          {"why", p.why.empty() ? Json(nullptr) : Json(p.why)},
          {"over_slo", p.sloNs > 0 ? Json(p.overSlo()) : Json(nullptr)},
          {"attainment", p.held},
          {"tokens_per_second", p.tokensPerSecond},
          {"device_bytes", p.deviceBytes},
          {"host_bytes", p.hostBytes},
          {"freed_bytes", p.freedBytes},
          {"moved_bytes", p.movedBytes},
          {"max_tokens", p.maxTokens},
          {"stall_share", p.stallShare},
          {"compute_busy", 1 - p.stallShare},
          {"link_busy", p.linkBusy}};
}

std::string percent(double share) { return absl::StrFormat("%.0f%%", 100 * share); }
std::string msText(double ns) { return absl::StrFormat("%.2f", ms(ns)); }
std::string signedBytes(int64_t bytes) {
  return bytes < 0 ? "-" + formatBytes(static_cast<uint64_t>(-bytes)) : formatBytes(static_cast<uint64_t>(bytes));
}

// Whether any row has this phase, and was asked to hold an objective in it.
bool has(const std::vector<BenchRow> &rows, Phase phase) {
  return std::any_of(rows.begin(), rows.end(), [&](const BenchRow &row) { return (row.*phase).has_value(); });
}
bool asked(const std::vector<BenchRow> &rows, Phase phase) {
  return std::any_of(rows.begin(), rows.end(),
                     [&](const BenchRow &row) { return (row.*phase).has_value() && (row.*phase)->sloNs > 0; });
}

// Why the row that is furthest from what was predicted of it is so; of the others how far.
std::string whyText(const std::vector<BenchRow> &rows, Phase phase) {
  const auto apart = [&](const BenchRow &row) {
    const double over = (row.*phase)->overPredicted;
    return over > 0 ? std::max(over, 1 / over) : 0;
  };
  const BenchRow *most = nullptr;
  for (const BenchRow &row : rows)
    if (const std::optional<BenchPhase> &p = row.*phase;
        p && !p->why.empty() && (most == nullptr || apart(row) > apart(*most)))
      most = &row;
  if (most == nullptr)
    return "";
  const auto name = [&](const BenchRow &row) { return model::cat(row.policy, ", batch ", (row.*phase)->batch); };
  std::string text = model::cat("why              ", name(*most), ": ", (most->*phase)->why, "\n"), others;
  for (const BenchRow &row : rows)
    if (const std::optional<BenchPhase> &p = row.*phase; p && !p->why.empty() && &row != most)
      absl::StrAppendFormat(&others, "%s%s %.2f x", others.empty() ? "" : "; ", name(row), p->overPredicted);
  return others.empty() ? text : text + model::cat("so also          ", others, "\n");
}

std::string phaseTable(const std::vector<BenchRow> &rows, Phase phase, const char *time, bool all) {
  const bool slo = asked(rows, phase);
  std::vector<std::string> header = {"policy", "batch", "layers off", model::cat(time, " p50"), "p99 ms"};
  if (slo)
    header.insert(header.end(), {"SLO ms", model::cat(time, "/SLO"), "held"});
  header.insert(header.end(),
                {"tokens/s", "device", "host", "freed", "moved/iter", "max_tokens", "stalled", "link busy"});
  std::vector<std::vector<std::string>> table{header};
  std::string refusals;
  for (const BenchRow &row : rows) {
    const std::optional<BenchPhase> &p = row.*phase;
    if (!p)
      continue;
    if (!p->refused.empty()) {
      absl::StrAppendFormat(&refusals, "%s, %s: no run: %s\n", row.policy,
                            p->batch > 0 ? model::cat("batch ", p->batch) : std::string("any batch"), p->refused);
      continue;
    }
    std::vector<std::string> cells = {row.policy, model::cat(p->batch), model::cat(p->layers),
                                      msText(static_cast<double>(p->time.p50Ns)),
                                      msText(static_cast<double>(p->time.p99Ns))};
    if (slo)
      cells.insert(cells.end(), {p->sloNs > 0 ? msText(p->sloNs) : std::string("-"),
                                 p->sloNs > 0 ? absl::StrFormat("%.3f", p->overSlo()) : std::string("-"),
                                 p->sloNs > 0 ? percent(p->held) : std::string("-")});
    cells.insert(cells.end(), {formatRate(p->tokensPerSecond), formatBytes(p->deviceBytes), formatBytes(p->hostBytes),
                               signedBytes(p->freedBytes), formatBytes(p->movedBytes), model::cat(p->maxTokens),
                               percent(p->stallShare), percent(p->linkBusy)});
    table.push_back(std::move(cells));
  }
  return (table.size() > 1 ? foldTable(table, all, "rows", kShowAll) : std::string()) + refusals + whyText(rows, phase);
}

// A policy has the same colour in every chart; -1: one that is left over.
int colourOf(const std::string &policy) {
  const compiler::Generator *named = compiler::findPolicy(policy);
  return named == nullptr ? -1 : static_cast<int>(named->colour);
}

// One panel a quantity, one group a batch, one bar a policy.
class Chart {
public:
  explicit Chart(const std::vector<BenchRow> &rows) : rows_(rows) {
    for (const BenchRow &row : rows) {
      if (std::find(batches_.begin(), batches_.end(), row.batch) == batches_.end())
        batches_.push_back(row.batch);
      if (std::find(chart.series.begin(), chart.series.end(), row.policy) == chart.series.end())
        chart.series.push_back(row.policy);
    }
    size_t others = 5; // into the colours that named policies seldom have
    for (const std::string &policy : chart.series)
      chart.colours.push_back(colourOf(policy) < 0 ? others++ : static_cast<size_t>(colourOf(policy)));
    for (const int64_t batch : batches_)
      chart.categories.push_back(batch > 0 ? model::cat("batch ", batch)
                                           : std::string("the largest batch that fits and holds"));
  }

  void phase(Phase phase, const std::string &name, const char *time) {
    if (!has(rows_, phase))
      return;
    constexpr double kGiB = 1024.0 * 1024 * 1024;
    if (asked(rows_, phase))
      panel(
          phase, model::cat(name, ": ", time, " (p50) over its objective"),
          [](const BenchPhase &p) { return p.overSlo(); }, 1.0);
    else
      panel(phase, model::cat(name, ": ", time, " (p50), ms"), [](const BenchPhase &p) { return ms(p.time.p50Ns); });
    if (std::find(batches_.begin(), batches_.end(), 0) != batches_.end())
      panel(phase, model::cat(name, ": batch"), [](const BenchPhase &p) { return static_cast<double>(p.batch); });
    panel(phase, model::cat(name, ": device memory freed, GiB"),
          [](const BenchPhase &p) { return std::max(0.0, static_cast<double>(p.freedBytes) / kGiB); });
    panel(phase, model::cat(name, ": tokens a second"), [](const BenchPhase &p) { return p.tokensPerSecond; });
    panel(phase, model::cat(name, ": tokens of KV cache that fit"),
          [](const BenchPhase &p) { return static_cast<double>(p.maxTokens); });
  }

  BarChart chart;

private:
  template <typename Value>
  void panel(Phase phase, std::string title, const Value &value, std::optional<double> limit = {}) {
    BarPanel p;
    p.title = std::move(title);
    p.limit = limit;
    p.limitName = limit ? "objective" : "";
    p.values.assign(batches_.size(), std::vector<std::optional<double>>(chart.series.size()));
    for (const BenchRow &row : rows_) {
      if (!(row.*phase) || !(row.*phase)->refused.empty())
        continue;
      const auto c = static_cast<size_t>(std::find(batches_.begin(), batches_.end(), row.batch) - batches_.begin());
      const auto s =
          static_cast<size_t>(std::find(chart.series.begin(), chart.series.end(), row.policy) - chart.series.begin());
      p.values[c][s] = value(*(row.*phase));
    }
    chart.panels.push_back(std::move(p));
  }

  const std::vector<BenchRow> &rows_;
  std::vector<int64_t> batches_;
};

} // namespace

Spread spreadOf(std::vector<int64_t> samplesNs) {
  std::sort(samplesNs.begin(), samplesNs.end());
  const auto rank = [&](size_t percent) { return (samplesNs.size() * percent + 99) / 100 - 1; };
  return {samplesNs[rank(50)], samplesNs[rank(99)]};
}

uint64_t offloadedBytes(const plan::Plan &plan, uint32_t placement) {
  return plan::weightBytesByHome(plan, placement).host + plan::kvBytesByHome(plan, placement).host;
}

int64_t maxTokens(const plan::Plan &plan, uint64_t deviceMemory) {
  uint64_t kv = 0;
  for (int64_t layer = 0; layer < plan.model->layers; ++layer)
    kv += plan.buffers[plan.kvBuffer(layer)].bytes;
  const uint64_t other = plan.arenaBytes - std::min(kv, plan.arenaBytes);
  if (other >= deviceMemory || plan.kvBlocks == 0)
    return 0;
  const uint64_t block = std::max<uint64_t>(kv / static_cast<uint64_t>(plan.kvBlocks), 1); // of all layers
  const auto blocks = static_cast<int64_t>((deviceMemory - other) / block);
  return std::max<int64_t>(blocks - 1, 0) * plan.blockTokens; // one is the scratch block of padded rows
}

std::string BenchReport::text(bool all) const {
  std::string out = absl::StrFormat("%s on %s, device %s, %s of device memory%s\n", model, hardware, device,
                                    formatBytes(deviceMemory), objective.empty() ? "" : "; objective " + objective);
  absl::StrAppendFormat(&out, "%d tokens in, %d out, %d rounds, prefill and decode %s\n", inputLength, outputLength,
                        rounds, instances == "apart" ? "on instances of their own" : "on one instance");
  if (has(rows, &BenchRow::prefill))
    out += "\nprefill\n" + phaseTable(rows, &BenchRow::prefill, "TTFT", all);
  if (has(rows, &BenchRow::decode))
    out += "\ndecode\n" + phaseTable(rows, &BenchRow::decode, "TPOT", all);
  return out;
}

std::string BenchReport::json() const {
  Json json = {
      {"format", "headrace-bench"},    {"model", model},         {"hardware", hardware},   {"device", device},
      {"device_memory", deviceMemory}, {"objective", objective}, {"instances", instances}, {"input_len", inputLength},
      {"output_len", outputLength},    {"rounds", rounds},       {"rows", Json::array()}};
  for (const BenchRow &row : rows)
    json["rows"].push_back({{"policy", row.policy},
                            {"batch", row.batch > 0 ? Json(row.batch) : Json("largest")},
                            {"prefill", phaseJson(row.prefill)},
                            {"decode", phaseJson(row.decode)}});
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string BenchReport::svg() const {
  Chart made(rows);
  made.chart.title = model::cat(model, " on ", hardware);
  made.chart.subtitle = absl::StrFormat("device %s, %s of device memory, %d tokens in, %d out%s; \xc3\x97: no run",
                                        device, formatBytes(deviceMemory), inputLength, outputLength,
                                        objective.empty() ? "" : "; objective " + objective);
  made.chart.columns = has(rows, &BenchRow::prefill) && has(rows, &BenchRow::decode) ? 2 : 1;
  made.phase(&BenchRow::prefill, "prefill", "TTFT");
  made.phase(&BenchRow::decode, "decode", "TPOT");
  return barChartSvg(made.chart);
}

} // namespace headrace::tools
