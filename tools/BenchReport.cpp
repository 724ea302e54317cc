// SPDX-License-Identifier: Apache-2.0
#include "tools/BenchReport.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "runtime/model/Text.h"
#include "tools/BarChart.h"
#include "tools/Format.h"

namespace headrace::tools {
namespace {

using Json = nlohmann::ordered_json;

double ms(double ns) { return ns / 1e6; }

Json spreadJson(const Spread &spread) {
  return {{"p50_ms", ms(static_cast<double>(spread.p50Ns))}, {"p99_ms", ms(static_cast<double>(spread.p99Ns))}};
}

Json rowJson(const BenchRow &row) {
  if (!row.refused.empty())
    return {{"policy", row.policy}, {"batch", row.batch}, {"refused", row.refused}};
  const auto slo = [](double ns) { return ns > 0 ? Json(ms(ns)) : Json(nullptr); };
  return {
      {"policy", row.policy},
      {"batch", row.batch},
      {"refused", nullptr},
      {"prefill_placement", row.prefillPlacement},
      {"decode_placement", row.decodePlacement},
      {"prefill_offloaded_layers", row.prefillLayers},
      {"decode_offloaded_layers", row.decodeLayers},
      {"ttft", spreadJson(row.ttft)},
      {"tpot", spreadJson(row.tpot)},
      {"predicted_tpot_ms", ms(row.predictedTpotNs)},
      {"ttft_slo_ms", slo(row.ttftSloNs)},
      {"tpot_slo_ms", slo(row.tpotSloNs)},
      {"ttft_attainment", row.ttftHeld},
      {"tpot_attainment", row.tpotHeld},
      {"tpot_over_slo", row.tpotSloNs > 0 ? Json(static_cast<double>(row.tpot.p50Ns) / row.tpotSloNs) : Json(nullptr)},
      {"tokens_per_second", row.tokensPerSecond},
      {"device_bytes", row.deviceBytes},
      {"host_bytes", row.hostBytes},
      {"freed_bytes", row.freedBytes},
      {"moved_bytes", row.movedBytes},
      {"max_tokens", row.maxTokens},
      {"stall_share", row.stallShare},
      {"compute_busy", row.computeBusy},
      {"link_busy", row.linkBusy}};
}

std::string percent(double share) { return absl::StrFormat("%.0f%%", 100 * share); }
std::string msText(int64_t ns) { return absl::StrFormat("%.2f", ms(static_cast<double>(ns))); }

// Whether any row was asked to hold an objective for its first token, and for the others.
struct Asked {
  bool ttft = false, tpot = false;
};
Asked askedIn(const std::vector<BenchRow> &rows) {
  Asked asked;
  for (const BenchRow &row : rows) {
    asked.ttft |= row.ttftSloNs > 0;
    asked.tpot |= row.tpotSloNs > 0;
  }
  return asked;
}

} // namespace

Spread spreadOf(std::vector<int64_t> samplesNs) {
  std::sort(samplesNs.begin(), samplesNs.end());
  const auto rank = [&](size_t percent) { return (samplesNs.size() * percent + 99) / 100 - 1; };
  return {samplesNs[rank(50)], samplesNs[rank(99)]};
}

uint64_t offloadedBytes(const plan::Plan &plan, uint32_t placement) {
  return plan::weightBytesByHome(plan, placement).host;
}

uint64_t freedBytes(const plan::Plan &plan, uint32_t placement) {
  uint64_t slots = 0;
  for (const plan::Slot &slot : plan.placements[placement].slots)
    slots += slot.bytes;
  const uint64_t away = offloadedBytes(plan, placement);
  return away > slots ? away - slots : 0;
}

int64_t maxTokens(const plan::Plan &plan, uint64_t deviceMemory) {
  uint64_t kv = 0;
  for (int64_t layer = 0; layer < plan.model.layers; ++layer)
    kv += plan.buffers[plan.kvBuffer(layer)].bytes;
  const uint64_t other = plan.arenaBytes - std::min(kv, plan.arenaBytes);
  if (other >= deviceMemory || plan.kvBlocks == 0)
    return 0;
  const uint64_t block = std::max<uint64_t>(kv / static_cast<uint64_t>(plan.kvBlocks), 1); // of all layers
  const auto blocks = static_cast<int64_t>((deviceMemory - other) / block);
  return std::max<int64_t>(blocks - 1, 0) * plan.blockTokens; // one is the scratch block of padded rows
}

std::string BenchReport::text() const {
  std::string out =
      absl::StrFormat("%s on %s, device %s, %s of device memory; %d tokens in, %d out, %d rounds\n", model, hardware,
                      device, formatBytes(deviceMemory), inputLength, outputLength, rounds);
  const Asked asked = askedIn(rows);
  std::vector<std::string> header = {"policy", "batch", "layers off p/d", "TTFT ms", "TPOT ms p50", "p99"};
  if (asked.ttft)
    header.insert(header.end(), {"TTFT/SLO", "held"});
  if (asked.tpot)
    header.insert(header.end(), {"TPOT/SLO", "held"});
  header.insert(header.end(),
                {"tokens/s", "device", "host", "freed", "moved", "max_tokens", "stalled", "compute", "link"});
  std::vector<std::vector<std::string>> table{header};
  for (const BenchRow &row : rows) {
    if (!row.refused.empty())
      continue;
    std::vector<std::string> cells = {row.policy,
                                      model::cat(row.batch),
                                      absl::StrFormat("%d/%d", row.prefillLayers, row.decodeLayers),
                                      msText(row.ttft.p50Ns),
                                      msText(row.tpot.p50Ns),
                                      msText(row.tpot.p99Ns)};
    const auto held = [&](double sloNs, int64_t ns, double share) {
      cells.push_back(sloNs > 0 ? absl::StrFormat("%.3f", static_cast<double>(ns) / sloNs) : "-");
      cells.push_back(sloNs > 0 ? percent(share) : "-");
    };
    if (asked.ttft)
      held(row.ttftSloNs, row.ttft.p50Ns, row.ttftHeld);
    if (asked.tpot)
      held(row.tpotSloNs, row.tpot.p50Ns, row.tpotHeld);
    cells.insert(cells.end(),
                 {formatCount(row.tokensPerSecond), formatBytes(row.deviceBytes), formatBytes(row.hostBytes),
                  formatBytes(row.freedBytes), formatBytes(row.movedBytes), model::cat(row.maxTokens),
                  percent(row.stallShare), percent(row.computeBusy), percent(row.linkBusy)});
    table.push_back(std::move(cells));
  }
  out += formatTable(table);
  for (const BenchRow &row : rows)
    if (!row.refused.empty())
      absl::StrAppendFormat(&out, "%s, batch %d: no run: %s\n", row.policy, row.batch, row.refused);
  return out;
}

std::string BenchReport::json() const {
  Json json = {
      {"model", model},           {"hardware", hardware},       {"device", device}, {"device_memory", deviceMemory},
      {"input_len", inputLength}, {"output_len", outputLength}, {"rounds", rounds}, {"rows", Json::array()}};
  for (const BenchRow &row : rows)
    json["rows"].push_back(rowJson(row));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string BenchReport::svg() const {
  BarChart chart;
  chart.title = model::cat(model, " on ", hardware);
  chart.subtitle = absl::StrFormat("device %s, %s of device memory, %d tokens in, %d out; a cross: no run", device,
                                   formatBytes(deviceMemory), inputLength, outputLength);
  std::vector<int64_t> batches;
  for (const BenchRow &row : rows) {
    if (std::find(batches.begin(), batches.end(), row.batch) == batches.end())
      batches.push_back(row.batch);
    if (std::find(chart.series.begin(), chart.series.end(), row.policy) == chart.series.end())
      chart.series.push_back(row.policy);
  }
  for (const int64_t batch : batches)
    chart.categories.push_back(model::cat("batch ", batch));
  const auto panel = [&](const char *title, auto &&value, std::optional<double> limit = {}) {
    BarPanel p;
    p.title = title;
    p.limit = limit;
    p.limitName = limit ? "objective" : "";
    p.values.assign(batches.size(), std::vector<std::optional<double>>(chart.series.size()));
    for (const BenchRow &row : rows) {
      if (!row.refused.empty())
        continue;
      const auto c = static_cast<size_t>(std::find(batches.begin(), batches.end(), row.batch) - batches.begin());
      const auto s =
          static_cast<size_t>(std::find(chart.series.begin(), chart.series.end(), row.policy) - chart.series.begin());
      p.values[c][s] = value(row);
    }
    chart.panels.push_back(std::move(p));
  };
  const Asked asked = askedIn(rows);
  const auto over = [](int64_t ns, double sloNs) {
    return sloNs > 0 ? std::optional(static_cast<double>(ns) / sloNs) : std::nullopt;
  };
  if (asked.ttft)
    panel(
        "TTFT over its objective", [&](const BenchRow &r) { return over(r.ttft.p50Ns, r.ttftSloNs); }, 1.0);
  if (asked.tpot)
    panel(
        "TPOT (p50) over its objective", [&](const BenchRow &r) { return over(r.tpot.p50Ns, r.tpotSloNs); }, 1.0);
  else
    panel("TPOT (p50), ms", [](const BenchRow &r) { return std::optional(ms(static_cast<double>(r.tpot.p50Ns))); });
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  panel("device memory freed, GiB",
        [](const BenchRow &r) { return std::optional(static_cast<double>(r.freedBytes) / kGiB); });
  panel("host memory, GiB", [](const BenchRow &r) { return std::optional(static_cast<double>(r.hostBytes) / kGiB); });
  panel("tokens a second", [](const BenchRow &r) { return std::optional(r.tokensPerSecond); });
  panel("tokens that fit (max_tokens)",
        [](const BenchRow &r) { return std::optional(static_cast<double>(r.maxTokens)); });
  return barChartSvg(chart);
}

} // namespace headrace::tools
