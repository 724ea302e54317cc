// SPDX-License-Identifier: Apache-2.0
#include "bench/prices/PredictedCells.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "bench/figures/Cells.h"
#include "bench/iterations/Predicted.h"
#include "bench/iterations/RoundPlan.h"
#include "bench/prices/Fit.h"

namespace headrace::bench {
namespace {

constexpr double kGiB = 1 << 30;

plan::Plan planned(const RoundRequest &request) {
  absl::StatusOr<plan::Plan> plan = planRound(request);
  if (!plan.ok())
    fail(std::string(plan.status().message()));
  return *std::move(plan);
}

// The smallest variant of a placement that holds the cell: the one that it runs.
uint32_t variantOf(const plan::Plan &plan, uint32_t placement, const Cell &cell) {
  const auto size = [&](uint32_t v) {
    return std::make_tuple(plan.variants[v].newTokens, plan.variants[v].sequences, plan.variants[v].context);
  };
  std::optional<uint32_t> best;
  for (uint32_t v = 0; v < plan.variants.size(); ++v) {
    const plan::Variant &variant = plan.variants[v];
    if (variant.placement == placement && (variant.newTokens == variant.sequences) == (cell.tokens == 1) &&
        variant.newTokens >= cell.sequences * cell.tokens && variant.sequences >= cell.sequences &&
        variant.context >= cell.context && (!best || size(v) < size(*best)))
      best = v;
  }
  if (!best)
    fail(cell.name + ": no variant holds it");
  return *best;
}

double number(const Json &figures, const char *part, std::string_view name, const char *field) {
  for (const Json &figure : figures["parts"][part]["figures"])
    if (figure["name"] == name)
      return figure[field].get<double>();
  fail(std::string(name) + " was not measured");
}

} // namespace

std::vector<PredictedCell> predictedCells(const Json &figures, const model::Hardware &hardware) {
  const Json &iterations = figures.at("parts").at("iterations").at("figures");
  const double link = number(figures, "link", "one copy of 1 GiB, h2d", "GB/s") * 1e9;
  std::map<std::string, const Json *> measured;
  for (const Json &figure : iterations)
    if (figure.contains("ms"))
      measured[figure["name"].get<std::string>()] = &figure;
  const auto memory = static_cast<uint64_t>(figures["facts"]["memory bytes"].get<double>() - 4 * kGiB);
  std::vector<PredictedCell> found;
  std::map<std::string, bool> done; // models of several rounds
  for (const Round &round : rounds()) {
    if (std::exchange(done[round.model], true))
      continue;
    RoundRequest request{
        .spec = shapeOf(round.model), .hardware = hardware, .deviceMemory = memory, .intervals = round.intervals};
    for (Cell cell : cellsOf(request.spec))
      if (const auto alone = measured.find(figureName(round.model, cell, 0)); alone != measured.end()) {
        cell.sequences = (*alone->second)["sequences"].get<int64_t>();
        request.cells.push_back(cell);
      }
    const plan::Plan plan = planned(request);
    for (const Cell &cell : request.cells)
      for (uint32_t p = 0; p < round.intervals.size(); ++p) {
        const auto figure = measured.find(figureName(round.model, cell, round.intervals[p]));
        if (figure == measured.end())
          continue;
        const double alone = (*measured[figureName(round.model, cell, 0)])["ms"].get<double>();
        found.push_back({figure->first, (*figure->second)["ms"].get<double>(),
                         predictedMs(plan, variantOf(plan, p, cell), cell),
                         (*figure->second)["h2d bytes"].get<double>() / link * 1e3 > alone});
      }
  }
  return found;
}

double medianError(const std::vector<PredictedCell> &cells, bool byLink) {
  std::vector<double> sizes;
  for (const PredictedCell &cell : cells)
    if (cell.byLink == byLink)
      sizes.push_back(std::abs(cell.error()));
  return middle(std::move(sizes));
}

double predictedPrefillMs(const model::ModelSpec &spec, int64_t tokens, const model::Hardware &hardware) {
  RoundRequest request{.spec = spec, .hardware = hardware, .deviceMemory = hardware.memoryBytes, .intervals = {0}};
  for (int64_t done = 0; done < tokens;) {
    const int64_t chunk = std::min<int64_t>(tokens - done, 32768);
    done += chunk;
    request.cells.push_back({"prefill up to " + std::to_string(done), 1, chunk, done, 1, false});
  }
  const plan::Plan plan = planned(request);
  double ms = 0;
  for (const Cell &cell : request.cells)
    ms += predictedMs(plan, variantOf(plan, 0, cell), cell);
  return ms;
}

double prefillByHandMs(const Measured &measured, int64_t tokens) {
  const model::ModelSpec spec = shapeOf("llama-3.1-8b"), opt = shapeOf("opt-6.7b");
  const auto n = static_cast<double>(tokens), hidden = static_cast<double>(spec.hidden);
  const auto q = static_cast<double>(spec.qRows()), kv = static_cast<double>(spec.kvRows()),
             mlp = static_cast<double>(spec.intermediate);
  const double products = 2 * n * hidden * (q + 2 * kv + q + 3 * mlp), attention = 2 * q * n * n;
  // Microseconds for a byte: a row of norm reads 4 and writes 2 bytes an element, rope_append of 2,040 rows of OPT-6.7B
  // reads k and v and writes them.
  const auto ofOpt = static_cast<double>(opt.hidden) * 2040;
  const double norm = tracedUs(measured.prefillSvg, "norm", true) / (6 * ofOpt),
               append = tracedUs(measured.prefillSvg, "rope_append", true) / (8 * ofOpt);
  const double rows = norm * n * (2 * 6 * hidden + 3 * 2 * mlp) + append * n * (2 * 2 * (q + kv) + 2 * 2 * kv);
  const double us =
      products / number(measured.figures, "kernels", "linear 28672 x 4096, 4096 rows", "TFLOP/s") * 1e-6 +
      attention / number(measured.figures, "kernels", "prefill attention, batch 1, 16384 tokens", "TFLOP/s") * 1e-6 +
      rows;
  return us * 1e-3 * static_cast<double>(spec.layers);
}

} // namespace headrace::bench
