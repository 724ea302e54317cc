// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile/Analyzer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/profile/AnalyzerInterference.h"
#include "runtime/profile/AnalyzerLaunches.h"
#include "runtime/profile/AnalyzerMemory.h"
#include "runtime/profile/AnalyzerPlan.h"
#include "runtime/profile/AnalyzerSpread.h"
#include "runtime/profile/Repeat.h"

namespace headrace::profile {
namespace {

using cost::CellKey;
using cost::Phase;
using cost::Site;

constexpr uint64_t kSmallestCopy = 4096;
constexpr double kCopiesShare = 0.1; // of a pair's time
constexpr double kSpreadShare = 10;  // of a pair's time, at most
constexpr int kLooks = 2;            // at pairs that were disturbed
constexpr double kDisturbedBy = 0.02;

std::vector<CellKey> pairsOf(const cost::Record &record) {
  std::vector<CellKey> pairs;
  for (Phase phase : {Phase::Prefill, Phase::Decode})
    for (int64_t batch : record.batches)
      for (int64_t sequence : record.sequences)
        if (record.onGrid(phase, batch, sequence))
          pairs.push_back({phase, batch, sequence});
  return pairs;
}

// What the iterations of one pair took.
struct Samples {
  std::vector<uint64_t> iterations;
  std::array<std::vector<uint64_t>, cost::kSites> sites; // a sample a step
  std::vector<std::vector<uint64_t>> layers;             // a sample an iteration

  void clear() {
    iterations.clear();
    for (auto &site : sites)
      site.clear();
    for (auto &layer : layers)
      layer.clear();
  }
};

// Whether a layer is steadily slower than another: by its share of the middle layer's time in the middle pair, so that
// a disturbance of some pairs is not taken for a slow layer. `pairs`: a time a layer.
bool equallyFast(const std::vector<std::vector<uint64_t>> &pairs, size_t layers, double tolerance) {
  constexpr double kParts = 1e6;
  std::vector<std::vector<uint64_t>> shares(layers);
  for (const std::vector<uint64_t> &times : pairs) {
    if (times.empty())
      continue;
    const auto middle = static_cast<double>(medianOf(times));
    for (size_t layer = 0; layer < layers; ++layer)
      shares[layer].push_back(static_cast<uint64_t>(kParts * static_cast<double>(times[layer]) / middle));
  }
  std::vector<uint64_t> steady;
  for (const std::vector<uint64_t> &share : shares)
    if (!share.empty())
      steady.push_back(medianOf(share));
  return cost::layersAreEqual(steady, tolerance);
}

class Analysis {
public:
  Analysis(cost::Record record, const Grid &grid, core::Device &device, const AnalyzerOptions &options)
      : record_(std::move(record)), device_(device), options_(options),
        plan_(makeAnalyzerPlan(grid.plan, pairsOf(record_), transferSizes(grid.copyBytes), grid.copyBytes)),
        launches_(device, plan_, options.seed) {
    for (const plan::Schedule &schedule : plan_.plan.schedules)
      sites_.push_back(sitesOf(plan_.plan, schedule));
    samples_.layers.resize(static_cast<size_t>(plan_.plan.model->layers));
    for (const cost::Cell &cell : record_.cells) { // none where they were found to be equal
      layerTimes_.push_back(cell.layerNs);
      if (!cell.layerNs.empty())
        layerTimes_.back().resize(samples_.layers.size());
    }
  }

  absl::StatusOr<cost::Record> run() {
    absl::Status status = device_.open(plan_.plan, {.trace = true});
    if (status.ok())
      status = load();
    if (!status.ok())
      return status;
    total_ = copiesLeft() + cellsLeft(record_, options_.all).size();
    if (status = report(); !status.ok())
      return status;
    for (const CopyGraphs &copies : plan_.copies) {
      if (std::any_of(record_.transfers.begin(), record_.transfers.end(),
                      [&](const cost::Transfer &t) { return t.bytes == copies.bytes; }))
        continue;
      if (status = measureCopies(copies); !status.ok())
        return status;
    }
    if (plan_.starts && record_.interference.repetitions == 0)
      if (status = interference(); !status.ok())
        return status;
    if (status = measurePairs(); !status.ok())
      return status;
    if (spreadLeft())
      if (status = spread(); !status.ok())
        return status;
    return record_;
  }

private:
  // A record that is continued keeps what was measured first: by then the system's cache holds the files.
  absl::Status load() {
    const int64_t start = device_.nowNs();
    RETURN_IF_ERROR(fillMemory(plan_.plan, device_, options_.weights, options_.loading));
    if (options_.fromFiles && device_.holdsData() && !record_.loading.measured())
      record_.loading = {model::layoutWeights(plan_.plan.model).totalBytes(),
                         static_cast<uint64_t>(std::max<int64_t>(1, device_.nowNs() - start))};
    return absl::OkStatus();
  }

  // ---- Copies

  // What one of the copies behind each other takes: together they are less blurred by late time stamps than each by
  // itself. Beside an iteration only copies that end before it count, if any does.
  void takeCopies(const plan::Schedule &schedule, absl::Span<const core::StepTime> times,
                  std::vector<uint64_t> &samples) const {
    int64_t computeEnd = 0;
    for (size_t i = 0; i < times.size(); ++i)
      if (plan::computes(schedule.steps[i].lane))
        computeEnd = std::max(computeEnd, times[i].endNs);
    int64_t start = 0, end = 0;
    uint64_t count = 0;
    for (size_t i = 0; i < times.size(); ++i) {
      if (schedule.steps[i].kind != plan::StepKind::Copy)
        continue;
      if (count != 0 && computeEnd != 0 && times[i].endNs > computeEnd)
        break;
      start = count == 0 ? times[i].startNs : start;
      end = times[i].endNs;
      ++count;
    }
    samples.push_back(lasted(start, end) / count);
  }

  absl::Status measureTiming(const core::GraphKey &key, bool both, cost::Timing &timing, uint32_t &repetitions) {
    std::vector<uint64_t> samples;
    const plan::Schedule &schedule = plan_.plan.schedules[plan_.schedule(key)];
    absl::Status status = launches_.repeat(
        key, plan_.besideCell, options_.secondsPerPair * kCopiesShare, samples,
        [&](absl::Span<const core::StepTime> times) {
          if (both)
            samples.push_back(
                lasted(std::min(times[0].startNs, times[1].startNs), std::max(times[0].endNs, times[1].endNs)));
          else
            takeCopies(schedule, times, samples);
        },
        [&] { samples.clear(); });
    if (!status.ok())
      return status;
    for (uint64_t &ns : samples)
      ns = std::max<uint64_t>(1, ns); // a record has no copies that take no time
    repetitions = std::min(repetitions, static_cast<uint32_t>(samples.size()));
    timing = cost::summarise(std::move(samples));
    return absl::OkStatus();
  }

  absl::Status measureCopies(const CopyGraphs &copies) {
    cost::Transfer transfer;
    transfer.bytes = copies.bytes;
    transfer.repetitions = ~uint32_t{0};
    const std::pair<core::GraphKey, cost::Timing *> kinds[] = {{copies.alone[0], &transfer.h2d},
                                                               {copies.alone[1], &transfer.d2h},
                                                               {copies.beside[0], &transfer.h2dWithCompute},
                                                               {copies.beside[1], &transfer.d2hWithCompute},
                                                               {copies.both, &transfer.both}};
    for (const auto &[key, timing] : kinds)
      if (absl::Status status = measureTiming(key, timing == &transfer.both, *timing, transfer.repetitions);
          !status.ok())
        return status;
    record_.transfers.insert(std::upper_bound(record_.transfers.begin(), record_.transfers.end(), transfer,
                                              [](const auto &a, const auto &b) { return a.bytes < b.bytes; }),
                             transfer);
    return report();
  }

  absl::Status interference() {
    absl::StatusOr<cost::MeasuredInterference> measured =
        measureInterference(plan_, launches_, options_.secondsPerPair * kCopiesShare);
    if (!measured.ok())
      return measured.status();
    record_.interference = *measured;
    return report();
  }

  // ---- Pairs

  void takeIteration(uint32_t index, absl::Span<const core::StepTime> times) {
    const plan::Schedule &schedule = plan_.plan.schedules[index];
    int64_t before = times.front().startNs;
    std::vector<uint64_t> layers(samples_.layers.size(), 0);
    for (size_t i = 0; i < times.size(); ++i) {
      const uint64_t ns = lasted(before, times[i].endNs);
      before = times[i].endNs;
      const plan::Step &step = schedule.steps[i];
      if (const std::optional<Site> site = sites_[index][i]; site) {
        std::vector<uint64_t> &samples = samples_.sites[static_cast<size_t>(*site)];
        if (step.kind == plan::StepKind::Publish && !samples.empty())
          samples.back() += ns;
        else
          samples.push_back(ns);
      }
      if (step.layer >= 0)
        layers[static_cast<size_t>(step.layer)] += ns;
    }
    for (size_t layer = 0; layer < layers.size(); ++layer)
      samples_.layers[layer].push_back(layers[layer]);
    samples_.iterations.push_back(lasted(times.front().startNs, before));
  }

  absl::Status measureCell(const CellKey &key) {
    const auto at = std::find(plan_.cells.begin(), plan_.cells.end(), key);
    if (at == plan_.cells.end())
      return absl::InternalError("the analyzer's plan lacks a pair of the record");
    const core::GraphKey graph = plan_.cellGraphs[static_cast<size_t>(at - plan_.cells.begin())];
    const uint32_t schedule = plan_.schedule(graph);
    absl::Status status = launches_.repeat(
        graph, key, options_.secondsPerPair, samples_.iterations,
        [&](absl::Span<const core::StepTime> times) { takeIteration(schedule, times); }, [&] { samples_.clear(); });
    if (!status.ok())
      return status;
    cost::Cell cell{key.phase, key.batch, key.sequence, static_cast<uint32_t>(samples_.iterations.size()), {}, {}};
    for (size_t site = 0; site < cost::kSites; ++site)
      if (!samples_.sites[site].empty()) // an op that the model does not have takes no time
        cell.sites[site] = cost::summarise(samples_.sites[site]);
    if (cost::layerComputeNs(cell) == 0)
      cell.at(Site::Qkv) = {1, 1, 1}; // shorter than the clock can tell
    std::vector<uint64_t> layers;
    for (const std::vector<uint64_t> &samples : samples_.layers)
      layers.push_back(std::max<uint64_t>(1, medianOf(samples)));
    keep(std::move(cell), std::move(layers));
    judgeLayers();
    return report();
  }

  // In place of an earlier look at the pair that took longer.
  void keep(cost::Cell cell, std::vector<uint64_t> layers) {
    const auto before = std::find_if(record_.cells.begin(), record_.cells.end(),
                                     [&](const cost::Cell &c) { return keyOf(c) == keyOf(cell); });
    if (before == record_.cells.end()) {
      record_.cells.push_back(std::move(cell));
      layerTimes_.push_back(std::move(layers));
    } else if (iterationNs(cell) < iterationNs(*before)) {
      layerTimes_[static_cast<size_t>(before - record_.cells.begin())] = std::move(layers);
      *before = std::move(cell);
    }
  }

  static CellKey keyOf(const cost::Cell &cell) { return {cell.phase, cell.batch, cell.sequence}; }
  uint64_t iterationNs(cost::Cell cell) const {
    cell.layerNs.clear(); // from its sites, whatever the verdict on the layers
    return cost::restComputeNs(cell) + cost::layerComputeNs(cell) * static_cast<uint64_t>(record_.layersRun);
  }

  // What is missing; then what was disturbed, some time after, and what is missing now that a shorter look counts.
  absl::Status measurePairs() {
    for (int looks = 0;; ++looks) {
      for (std::vector<CellKey> missing; !(missing = cellsLeft(record_, options_.all)).empty();)
        RETURN_IF_ERROR(measureCell(missing.front()));
      if (looks == kLooks)
        return absl::OkStatus();
      for (const CellKey &key : disturbed())
        RETURN_IF_ERROR(measureCell(key));
    }
  }

  // Pairs that take longer than one with as much work or more: something else slowed the machine down.
  std::vector<CellKey> disturbed() const {
    std::vector<CellKey> found;
    for (const cost::Cell &cell : record_.cells) {
      const double most = static_cast<double>(iterationNs(cell)) / (1 + kDisturbedBy);
      if (std::any_of(record_.cells.begin(), record_.cells.end(), [&](const cost::Cell &more) {
            return more.phase == cell.phase && more.batch >= cell.batch && more.sequence >= cell.sequence &&
                   static_cast<double>(iterationNs(more)) < most;
          }))
        found.push_back(keyOf(cell));
    }
    return found;
  }

  // The verdict on the layers over all pairs so far, and their times where it says that they are not equal.
  void judgeLayers() {
    const auto layers = static_cast<size_t>(record_.identity.layers);
    record_.layersEqual = equallyFast(layerTimes_, samples_.layers.size(), options_.layerTolerance);
    for (size_t i = 0; i < record_.cells.size(); ++i) {
      cost::Cell &cell = record_.cells[i];
      cell.layerNs.clear();
      if (record_.layersEqual)
        continue;
      cell.layerNs = layerTimes_[i];
      if (cell.layerNs.empty())
        cell.layerNs.assign(layers, cost::layerComputeNs(cell));
      cell.layerNs.resize(layers, *std::max_element(cell.layerNs.begin(), cell.layerNs.end()));
    }
  }

  // ---- Spread

  bool spreadLeft() const { return !plan_.waiting.empty() && record_.spread.repetitions == 0; }

  absl::Status spread() {
    absl::StatusOr<cost::MeasuredSpread> measured =
        measureSpread(record_, plan_, device_, launches_, options_.secondsPerPair * kSpreadShare);
    if (!measured.ok())
      return measured.status();
    record_.spread = *measured;
    return report();
  }

  // ---- Progress

  // Sizes of copies, the interference and the spread.
  size_t copiesLeft() const {
    return plan_.copies.size() - std::min(plan_.copies.size(), record_.transfers.size()) +
           (plan_.starts.has_value() && record_.interference.repetitions == 0 ? 1 : 0) + (spreadLeft() ? 1 : 0);
  }

  absl::Status report() {
    if (options_.measuring)
      options_.measuring(total_ - std::min<uint64_t>(total_, copiesLeft() + cellsLeft(record_, options_.all).size()),
                         total_);
    return options_.onProgress ? options_.onProgress(record_) : absl::OkStatus();
  }

  cost::Record record_;
  core::Device &device_;
  const AnalyzerOptions &options_;
  const AnalyzerPlan plan_;
  AnalyzerLaunches launches_;
  std::vector<std::vector<std::optional<Site>>> sites_; // by schedule
  Samples samples_;
  std::vector<std::vector<uint64_t>> layerTimes_; // a cell's layers, as many as are run; empty: equal, not kept
  uint64_t total_ = 0;
};

} // namespace

std::vector<uint64_t> transferSizes(uint64_t largest) {
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = kSmallestCopy; bytes < largest; bytes *= 4)
    sizes.push_back(bytes);
  sizes.push_back(largest);
  return sizes;
}

std::vector<CellKey> cellsLeft(const cost::Record &record, bool all) {
  if (!all)
    return cost::missingCells(record);
  cost::Record unsettled; // without transfers nothing is settled
  unsettled.batches = record.batches;
  unsettled.sequences = record.sequences;
  unsettled.mostTokens = record.mostTokens;
  unsettled.cells = record.cells;
  return cost::missingCells(unsettled);
}

cost::Record emptyRecord(const Grid &grid, cost::Identity identity, const model::ModelSpec &model) {
  cost::Record record;
  record.identity = std::move(identity);
  record.model = model;
  record.hardware = grid.plan.hardware;
  record.batches = grid.batches;
  record.sequences = grid.sequences;
  record.mostTokens = grid.mostTokens;
  record.layersRun = grid.plan.model->layers;
  return record;
}

absl::StatusOr<cost::Record> analyze(cost::Record record, const Grid &grid, core::Device &device,
                                     const AnalyzerOptions &options) {
  return Analysis(std::move(record), grid, device, options).run();
}

} // namespace headrace::profile
