// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile/AnalyzerLines.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/Kernels.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/cost/HybridServe.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/profile/AnalyzerLaunches.h"
#include "runtime/profile/AnalyzerMemory.h"
#include "runtime/profile/AnalyzerPlan.h"

namespace headrace::profile {
namespace {

using cost::CellKey;
using cost::LineKind;
using cost::Phase;

constexpr int kLineTurns = 5, kLineLooks = 3;
constexpr double kLoadsShare = 0.1; // of a count's time

// Bytes of a token and layer.
cost::BlockBytes tokenBytes(const model::ModelSpec &model, const model::Encoding &activation,
                            const model::Encoding &kv) {
  return {static_cast<int64_t>(kv.bytes(2 * model.kvHeads, model.headDim)),
          static_cast<int64_t>(activation.bytes(1, model.hidden))};
}

// The pair of most tokens, of those the one with the longest context; nothing where all have more than `most`.
std::optional<CellKey> largestPair(const Grid &grid, int64_t most) {
  std::optional<CellKey> largest;
  for (const int64_t batch : grid.batches)
    for (const int64_t sequence : grid.sequences) {
      if (batch * sequence > most)
        continue;
      const int64_t beaten = largest ? largest->batch * largest->sequence : 0;
      if (batch * sequence > beaten || (batch * sequence == beaten && sequence > largest->sequence))
        largest = CellKey{Phase::Decode, batch, sequence};
    }
  return largest;
}

class Measuring {
public:
  Measuring(const LinesPlan &lines, core::Device &device, const AnalyzerOptions &options)
      : options_(options), device_(device),
        bytes_(tokenBytes(lines.plan.model, lines.plan.activationDtype, lines.plan.kvEncoding)),
        plan_(makeLinesPlan(lines.plan, lines.cells, sizesOf(lines))), launches_(device, plan_, options.seed) {}

  absl::StatusOr<cost::MeasuredLines> run() {
    RETURN_IF_ERROR(device_.open(plan_.plan, {.trace = true}));
    RETURN_IF_ERROR(fillMemory(plan_.plan, device_, options_.weights, options_.loading));
    cost::MeasuredLines lines;
    for (int kind = 0; kind < cost::kLines; ++kind) {
      if (options_.measuring)
        options_.measuring(static_cast<uint64_t>(kind), cost::kLines);
      RETURN_IF_ERROR(measure(static_cast<LineKind>(kind), lines.samples[static_cast<size_t>(kind)]));
    }
    return lines;
  }

private:
  uint64_t loadBytes(LineKind kind, const CellKey &cell, const plan::Plan &plan) const {
    const int64_t bytes = kind == LineKind::LoadKv ? bytes_.kv : bytes_.act;
    return static_cast<uint64_t>(bytes * actRowsOf(plan, cell));
  }

  std::vector<uint64_t> sizesOf(const LinesPlan &lines) const {
    std::vector<uint64_t> sizes;
    for (const LineKind kind : {LineKind::LoadKv, LineKind::LoadAct})
      for (const CellKey &cell : lines.cells)
        sizes.push_back(loadBytes(kind, cell, lines.plan));
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    return sizes;
  }

  absl::Status measure(LineKind kind, std::vector<cost::MeasuredLines::Sample> &samples) {
    const std::string name = model::cat("regression.", cost::lineName(kind));
    for (const CellKey &cell : plan_.cells)
      samples.push_back(
          {actRowsOf(plan_.plan, cell), {cost::kLongestStepNs, cost::kLongestStepNs, cost::kLongestStepNs}});
    for (int look = 1;; ++look) {
      for (int turn = 0; turn < kLineTurns; ++turn)
        for (size_t i = 0; i < samples.size(); ++i) {
          ASSIGN_OR_RETURN(timing, timingOf(kind, i));
          if (timing.medianNs < samples[i].timing.medianNs)
            samples[i].timing = timing;
        }
      absl::Status status = cost::fitLine(samples, name).status();
      if (status.ok())
        return status;
      if (look == kLineLooks)
        return absl::FailedPreconditionError(
            model::cat(status.message(), "; after ", kLineLooks, " looks of ", kLineTurns, " turns: ",
                       device_.holdsData() ? "is the machine busy?"
                                           : "few tokens cost what weights do: larger --batches and --sequences lie "
                                             "on a line",
                       " The record is as it was without --activations"));
    }
  }

  absl::StatusOr<cost::Timing> timingOf(LineKind kind, size_t count) {
    const CellKey &cell = plan_.cells[count];
    const bool rebuild = kind == LineKind::RebuildKv;
    core::GraphKey key = plan_.cellGraphs[count];
    if (!rebuild)
      key = std::find_if(plan_.copies.begin(), plan_.copies.end(), [&](const CopyGraphs &c) {
              return c.bytes == loadBytes(kind, cell, plan_.plan);
            })->alone[0];
    const plan::Schedule &schedule = plan_.plan.schedules[plan_.schedule(key)];
    std::vector<uint64_t> samples;
    const double seconds = options_.secondsPerPair * (rebuild ? 1 : kLoadsShare) / kLineTurns;
    RETURN_IF_ERROR(launches_.repeat(
        key, cell, seconds, samples,
        [&](absl::Span<const core::StepTime> times) {
          samples.push_back(std::max<uint64_t>(1, rebuild ? rebuildNs(schedule, times) : loadNs(times)));
        },
        [&] { samples.clear(); }));
    return cost::summarise(std::move(samples));
  }

  // Of a layer, the mean of all: from the end of the step before it, as every op's time in a record.
  static uint64_t rebuildNs(const plan::Schedule &schedule, absl::Span<const core::StepTime> times) {
    uint64_t sum = 0, layers = 0;
    for (size_t i = 1; i < times.size(); ++i)
      if (schedule.steps[i].kind == plan::StepKind::Compute && schedule.steps[i].op == kernels::Op::RebuildKv) {
        sum += lasted(times[i - 1].endNs, times[i].endNs);
        ++layers;
      }
    return sum / std::max<uint64_t>(1, layers);
  }

  // Of copies one behind the other, each.
  static uint64_t loadNs(absl::Span<const core::StepTime> times) {
    return lasted(times.front().startNs, times.back().endNs) / times.size();
  }

  const AnalyzerOptions &options_;
  core::Device &device_;
  const cost::BlockBytes bytes_;
  const AnalyzerPlan plan_;
  AnalyzerLaunches launches_;
};

} // namespace

std::vector<CellKey> lineCells(int64_t batch, int64_t sequence, int64_t blockTokens) {
  const int64_t longest = (sequence + blockTokens - 1) / blockTokens; // in blocks
  std::vector<CellKey> cells;
  int64_t last = 0; // in blocks
  for (int i = 1; i <= kLineCounts; ++i) {
    const double wanted = static_cast<double>(batch * longest) * i / kLineCounts;
    int64_t best = 0, sequences = 1;
    for (int64_t s = batch; s >= 1; --s) {
      const auto blocks = std::clamp<int64_t>(std::llround(wanted / static_cast<double>(s)), 1, longest);
      if (best == 0 ||
          std::abs(static_cast<double>(s * blocks) - wanted) < std::abs(static_cast<double>(best) - wanted)) {
        best = s * blocks;
        sequences = s;
      }
    }
    if (best > last)
      cells.push_back({Phase::Decode, sequences, std::min(sequence, best / sequences * blockTokens)});
    last = std::max(last, best);
  }
  return cells;
}

absl::StatusOr<LinesPlan> chooseLinesPlan(const GridRequest &request, const Grid &grid, double seconds) {
  const cost::Roofline costs(request.model, request.hardware, request.activation, request.kv);
  const cost::BlockBytes bytes = tokenBytes(request.model, request.activation, request.kv);
  const auto budget = static_cast<uint64_t>(seconds * 1e9);
  const int64_t most = grid.plan.model->layers, least = std::min<int64_t>(2, most);
  const auto cellsOf = [&](const CellKey &pair) { return lineCells(pair.batch, pair.sequence, request.blockTokens); };
  absl::Status none; // why a larger pair was not taken
  std::optional<CellKey> pair = largestPair(grid, grid.mostTokens[static_cast<size_t>(Phase::Decode)]);
  for (; pair; pair = largestPair(grid, pair->batch * pair->sequence / 2)) {
    std::vector<CellKey> cells = cellsOf(*pair);
    if (cells.size() < cost::kLeastLineSamples && none.ok())
      return absl::InvalidArgumentError(
          model::cat("--activations: up to ", pair->batch, " sequences of up to ", pair->sequence, " tokens make ",
                     cells.size(), " counts of whole blocks of ", request.blockTokens, " tokens: expected at least ",
                     cost::kLeastLineSamples, ", of longer --sequences or more --batches"));
    if (cells.size() < cost::kLeastLineSamples)
      break;
    const int64_t blocks = pair->batch * ((pair->sequence + request.blockTokens - 1) / request.blockTokens);
    const int64_t rows = blocks * request.blockTokens;
    const uint64_t layerNs = std::max<uint64_t>(
        1, costs.computeNs({kernels::Op::RebuildKv, model::UnitRole::Qkv}, {.actRows = rows}, false));
    const auto layers = static_cast<int64_t>(std::min<uint64_t>(budget / layerNs, static_cast<uint64_t>(most)));
    const std::optional<CellKey> smaller = largestPair(grid, pair->batch * pair->sequence / 2);
    if (layers < least && smaller && cellsOf(*smaller).size() >= cost::kLeastLineSamples)
      continue;
    const uint64_t copies = 2 * model::alignUp(static_cast<uint64_t>(rows * std::max(bytes.kv, bytes.act)));
    PlanSizes sizes;
    sizes.activations = true;
    sizes.model = request.model;
    sizes.model.layers = std::max(layers, least);
    sizes.batch = pair->batch;
    sizes.context = pair->sequence;
    sizes.newTokens = pair->batch + 1; // more rows than sequences, as in the grid's plan
    sizes.kvTokens = std::max(rows, sizes.newTokens);
    sizes.deviceMemory = request.deviceMemory - std::min(request.deviceMemory, copies);
    absl::StatusOr<plan::Plan> plan = request.plans(sizes);
    if (plan.ok())
      return LinesPlan{*std::move(plan), std::move(cells)};
    none = plan.status();
    if (none.code() != absl::StatusCode::kResourceExhausted)
      return none;
  }
  return none;
}

absl::StatusOr<cost::MeasuredLines> measureLines(const LinesPlan &lines, core::Device &device,
                                                 const AnalyzerOptions &options) {
  return Measuring(lines, device, options).run();
}

} // namespace headrace::profile
