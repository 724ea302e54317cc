// SPDX-License-Identifier: Apache-2.0
#include "tools/report/RecordReport.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "runtime/base/Text.h"
#include "tools/report/Format.h"

namespace headrace::tools {
namespace {

using cost::Phase;
using Json = nlohmann::ordered_json;
using model::cat;

constexpr Phase kBoth[] = {Phase::Prefill, Phase::Decode};

// Pairs of one phase.
struct Counts {
  int64_t measured = 0;
  int64_t settled = 0; // need not be measured: a smaller one computes a layer longer than it is copied
  int64_t missing = 0;
  int64_t leftOut = 0; // not on the grid
};
Counts countsOf(const cost::Record &record, Phase phase) {
  cost::Record whole = record; // as if all pairs of the axes were on the grid
  whole.mostTokens.fill(cost::kAnyTokens);
  Counts counts;
  for (const cost::Cell &cell : record.cells)
    counts.measured += cell.phase == phase;
  for (const cost::CellKey &key : cost::missingCells(whole))
    if (key.phase == phase)
      ++(record.onGrid(phase, key.batch, key.sequence) ? counts.missing : counts.leftOut);
  counts.settled = static_cast<int64_t>(record.batches.size() * record.sequences.size()) - counts.measured -
                   counts.missing - counts.leftOut;
  return counts;
}

// (p90 - p10) / median of a whole cell, sites added up.
double spreadOf(const cost::Cell &cell) {
  uint64_t low = 0, middle = 0, high = 0;
  for (const cost::Timing &site : cell.sites) {
    low += site.p10Ns;
    middle += site.medianNs;
    high += site.p90Ns;
  }
  return static_cast<double>(high - low) / static_cast<double>(std::max<uint64_t>(1, middle));
}

struct Spread {
  double median = 0, worst = 0;
  const cost::Cell *worstCell = nullptr;
};
Spread spreadOf(const cost::Record &record) {
  Spread spread;
  std::vector<double> all;
  for (const cost::Cell &cell : record.cells) {
    all.push_back(spreadOf(cell));
    if (spread.worstCell == nullptr || all.back() > spread.worst) {
      spread.worst = all.back();
      spread.worstCell = &cell;
    }
  }
  if (!all.empty()) {
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
    spread.median = all[all.size() / 2];
  }
  return spread;
}

// The slowest layer over the fastest, in the cell where that is most.
double layerRatio(const cost::Record &record) {
  double ratio = 1;
  for (const cost::Cell &cell : record.cells)
    if (!cell.layerNs.empty()) {
      const auto [least, most] = std::minmax_element(cell.layerNs.begin(), cell.layerNs.end());
      ratio = std::max(ratio, static_cast<double>(*most) / static_cast<double>(*least));
    }
  return ratio;
}

std::string cellName(const cost::Cell &cell) {
  return cat(cost::phaseName(cell.phase), " batch ", cell.batch, " sequence ", cell.sequence);
}

std::string gridLine(const cost::Record &record, Phase phase) {
  const Counts counts = countsOf(record, phase);
  std::string line = cat(counts.measured, " pairs measured");
  if (counts.settled > 0)
    line += cat(", ", counts.settled, " more need not be: a smaller one computes a layer longer than it is copied");
  if (counts.missing > 0)
    line += cat(", ", counts.missing, " still missing");
  if (counts.leftOut > 0)
    line +=
        cat("; ", counts.leftOut, " of more than ", record.mostTokens[static_cast<size_t>(phase)], " tokens left out");
  return line;
}

// Table 1's entries, and what else is known of each.
Json tableJson(const cost::RecordCostModel &costs, Phase phase, const cost::Slo &slo) {
  Json rows = Json::array();
  for (int64_t batch : costs.record().batches)
    for (int64_t sequence : costs.record().sequences) {
      const cost::IntervalChoice choice = cost::chooseFromRecord(costs, phase, batch, sequence, slo);
      rows.push_back({{"batch", batch},
                      {"sequence", sequence},
                      {"feasible", choice.feasible},
                      {"interval", choice.feasible && choice.interval > 0 ? Json(choice.interval) : Json()},
                      {"offloaded_layers", choice.offloaded},
                      {"freed_layers", choice.freed},
                      {"iteration_ms", choice.iterationNs / 1e6}});
    }
  return rows;
}

// What iterations take, against what the record predicts of them.
std::string iterationsText(const cost::MeasuredSpread::Iterations &i) {
  return absl::StrFormat("predicted %s, median %s, p99 %s", formatNs(i.predictedNs), formatNs(i.medianNs),
                         formatNs(i.slowestNs));
}

Json iterationsJson(const cost::MeasuredSpread::Iterations &i) {
  return {{"predicted_ns", i.predictedNs}, {"median_ns", i.medianNs}, {"p99_ns", i.slowestNs}};
}

// Of two times the first over the second, as a signed percentage.
std::string off(double predicted, double measured) {
  return absl::StrFormat("%+.1f%%", 100 * (predicted / measured - 1));
}

// The lines of a record, each with what it predicts of the counts that it was not fitted to.
std::string linesText(const cost::MeasuredLines &lines) {
  std::vector<std::vector<std::string>> rows = {
      {"line", "R^2", "at 0", "a token", "held out, tokens", "predicted", "measured", "off"}};
  for (int kind = 0; kind < cost::kLines; ++kind) {
    const auto &samples = lines.samples[static_cast<size_t>(kind)];
    const absl::StatusOr<cost::Line> line = cost::fitLine(samples, "");
    for (size_t i = 0; line.ok() && i < samples.size(); ++i) {
      if (!cost::heldOut(i))
        continue;
      std::vector<std::string> row(4);
      if (i == 1)
        row = {cat(cost::lineName(static_cast<cost::LineKind>(kind))), absl::StrFormat("%.4f", line->r2),
               absl::StrFormat("%.0f ns", line->interceptNs), absl::StrFormat("%.4g ns", line->slopeNsPerToken)};
      const double predicted = cost::lineNs(*line, samples[i].tokens);
      const uint64_t measured = samples[i].timing.medianNs;
      row.insert(row.end(), {cat(samples[i].tokens), formatNs(static_cast<uint64_t>(predicted)), formatNs(measured),
                             off(predicted, static_cast<double>(measured))});
      rows.push_back(std::move(row));
    }
  }
  return "\nOf a layer, by tokens; lines fitted to every other count:\n" + formatTable(rows);
}

Json linesJson(const cost::MeasuredLines &lines) {
  Json all;
  for (int kind = 0; kind < cost::kLines; ++kind) {
    const auto &samples = lines.samples[static_cast<size_t>(kind)];
    const absl::StatusOr<cost::Line> line = cost::fitLine(samples, "");
    if (!line.ok())
      continue;
    Json &j = all[cat(cost::lineName(static_cast<cost::LineKind>(kind)))];
    j = {{"intercept_ns", line->interceptNs}, {"slope_ns", line->slopeNsPerToken}, {"r2", line->r2}};
    for (size_t i = 0; i < samples.size(); ++i)
      j["samples"].push_back({{"tokens", samples[i].tokens},
                              {"held_out", cost::heldOut(i)},
                              {"predicted_ns", cost::lineNs(*line, samples[i].tokens)},
                              {"median_ns", samples[i].timing.medianNs},
                              {"p10_ns", samples[i].timing.p10Ns},
                              {"p90_ns", samples[i].timing.p90Ns}});
  }
  return all;
}

Json timingJson(const cost::Timing &timing) {
  return {{"median_ns", timing.medianNs}, {"p10_ns", timing.p10Ns}, {"p90_ns", timing.p90Ns}};
}

} // namespace

std::string recordReportText(const cost::Record &record, const std::string &path, const std::optional<cost::Slo> &slo) {
  const cost::Identity &id = record.identity;
  std::string text;
  const auto line = [&](const char *name, const std::string &value) {
    text += absl::StrFormat("%-14s %s\n", name, value);
  };
  line("record", path);
  line("model", cat(model::escaped(id.model, 80), ", ", id.layers, " layers of ", formatBytes(id.layerBytes), " (",
                    id.layerBytes, " bytes), hash ", model::escaped(id.modelHash, 40)));
  line("device", cat(model::escaped(id.device, 80), ", ", model::deviceKindName(id.kind), "; activations ",
                     model::dtypeName(id.activation), ", KV cache ", model::encodingText(id.kv)));
  if (record.layersRun < id.layers)
    line("layers run", cat(record.layersRun, " of ", id.layers, ": more left no room for batches and contexts"));
  line("grid", cat("batch ", record.batches.front(), " to ", record.batches.back(), ", sequence ",
                   record.sequences.front(), " to ", record.sequences.back(), ", powers of two"));
  for (Phase phase : kBoth)
    line(phase == Phase::Prefill ? "prefill" : "decode", gridLine(record, phase));
  if (!record.layersEqual)
    line("layers",
         absl::StrFormat("not equally fast: the slowest takes %.2f x the fastest; the record has the times of "
                         "each",
                         layerRatio(record)));
  else if (!record.cells.empty())
    line("layers", "equally fast");
  if (const Spread spread = spreadOf(record); spread.worstCell != nullptr)
    line("spread", absl::StrFormat("p10 to p90 is %.1f%% of the median for half the pairs, at most %.1f%% (%s)",
                                   100 * spread.median, 100 * spread.worst, cellName(*spread.worstCell)));
  if (record.spread.repetitions > 0) {
    line("resident", cat(iterationsText(record.spread.resident), ", of ", record.spread.repetitions, " iterations"));
    line("offloading",
         absl::StrFormat("%s where layers wait for copies: objectives keep %.1f%% free",
                         iterationsText(record.spread.waiting), cost::percentKeptFree(record.spread.slowestFactor())));
  }
  if (record.loading.measured())
    line("loading", absl::StrFormat("%s of a folder's weights in %s, %s/s", formatBytes(record.loading.bytes),
                                    formatNs(record.loading.ns),
                                    formatBytes(static_cast<uint64_t>(record.loading.bytesPerSecond()))));
  if (!record.transfers.empty()) {
    std::vector<std::vector<std::string>> rows = {
        {"copy", "h2d", "d2h", "h2d beside compute", "d2h beside compute", "both at once", "h2d GB/s"}};
    for (const cost::Transfer &t : record.transfers)
      rows.push_back({formatBytes(t.bytes), formatNs(t.h2d.medianNs), formatNs(t.d2h.medianNs),
                      formatNs(t.h2dWithCompute.medianNs), formatNs(t.d2hWithCompute.medianNs),
                      formatNs(t.both.medianNs),
                      absl::StrFormat("%.2f", static_cast<double>(t.bytes) / static_cast<double>(t.h2d.medianNs))});
    text += "\n" + formatTable(rows);
  }
  if (record.lines.measured())
    text += linesText(record.lines);
  if (!slo)
    return text;
  const absl::StatusOr<cost::RecordCostModel> costs = cost::RecordCostModel::create(record, path);
  if (!costs.ok())
    return text;
  text +=
      "\nOffloading intervals: of every so many layers the last is offloaded. \"-\" offload nothing, \"x\" cannot be "
      "met.\n";
  for (Phase phase : kBoth)
    text += "\n" + cost::recordTable(*costs, phase, *slo);
  return text;
}

std::string recordReportJson(const cost::Record &record, const std::string &path, const std::optional<cost::Slo> &slo) {
  const cost::Identity &id = record.identity;
  Json j;
  j["record"] = path;
  j["version"] = cost::kRecordVersion;
  j["model"] = {{"name", id.model}, {"hash", id.modelHash}, {"layers", id.layers}, {"layer_bytes", id.layerBytes}};
  j["device"] = {{"name", id.device}, {"kind", cat(model::deviceKindName(id.kind))}};
  j["activation_dtype"] = cat(model::dtypeName(id.activation));
  j["kv_dtype"] = model::encodingText(id.kv);
  j["complete"] = cost::checkComplete(record, path).ok();
  j["layers_run"] = record.layersRun;
  j["layers_equal"] = record.layersEqual;
  j["grid"] = {{"batch", record.batches}, {"sequence", record.sequences}};
  for (Phase phase : kBoth) {
    const Counts counts = countsOf(record, phase);
    const std::string name = cat(cost::phaseName(phase));
    j["pairs"][name] = {{"measured", counts.measured},
                        {"settled", counts.settled},
                        {"missing", counts.missing},
                        {"left_out", counts.leftOut}};
  }
  if (record.loading.measured())
    j["loading"] = {{"bytes", record.loading.bytes}, {"ns", record.loading.ns}};
  const Spread spread = spreadOf(record);
  j["spread"] = {{"median", spread.median}, {"worst", spread.worst}};
  if (record.spread.repetitions > 0)
    j["iterations"] = {{"repetitions", record.spread.repetitions},
                       {"resident", iterationsJson(record.spread.resident)},
                       {"waiting_for_copies", iterationsJson(record.spread.waiting)},
                       {"slowest_factor", record.spread.slowestFactor()}};
  j["transfers"] = Json::array();
  for (const cost::Transfer &t : record.transfers)
    j["transfers"].push_back({{"bytes", t.bytes},
                              {"repetitions", t.repetitions},
                              {"h2d", timingJson(t.h2d)},
                              {"d2h", timingJson(t.d2h)},
                              {"h2d_with_compute", timingJson(t.h2dWithCompute)},
                              {"d2h_with_compute", timingJson(t.d2hWithCompute)},
                              {"both", timingJson(t.both)}});
  if (record.lines.measured())
    j["lines"] = linesJson(record.lines);
  j["cells"] = Json::array();
  for (const cost::Cell &cell : record.cells)
    j["cells"].push_back({{"phase", cat(cost::phaseName(cell.phase))},
                          {"batch", cell.batch},
                          {"sequence", cell.sequence},
                          {"repetitions", cell.repetitions},
                          {"layer_ns", cost::layerComputeNs(cell)},
                          {"rest_ns", cost::restComputeNs(cell)},
                          {"spread", spreadOf(cell)}});
  if (slo) {
    j["slo"] = slo->factor > 0
                   ? Json{{"factor", slo->factor}}
                   : Json{{"ms", static_cast<double>(cost::roundSlo(static_cast<uint64_t>(slo->ns))) / 1e6}};
    if (const auto costs = cost::RecordCostModel::create(record, path); costs.ok())
      for (Phase phase : kBoth)
        j["table"][cat(cost::phaseName(phase))] = tableJson(*costs, phase, *slo);
  }
  return j.dump(2) + "\n";
}

} // namespace headrace::tools
