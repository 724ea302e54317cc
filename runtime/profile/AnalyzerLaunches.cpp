// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile/AnalyzerLaunches.h"

#include <chrono>
#include <numeric>
#include <thread>

#include "runtime/base/StatusMacros.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/profile/Repeat.h"

namespace headrace::profile {
namespace {

constexpr int64_t kLongWarmUp = 4; // a first run that takes a quarter of the time counts as a sample
constexpr std::chrono::microseconds kRest(100);

} // namespace

AnalyzerLaunches::AnalyzerLaunches(core::Device &device, const AnalyzerPlan &plan, uint64_t seed)
    : device_(device), plan_(plan), prompt_(static_cast<size_t>(plan.plan.metaLayout.maxTokens)),
      blocks_(static_cast<size_t>(plan.plan.kvBlocks - 1 + plan.plan.actBlocks)) {
  uint64_t counter = seed * 0x9e3779b97f4a7c15u;
  for (int32_t &id : prompt_) {
    uint64_t z = counter += 0x9e3779b97f4a7c15u; // SplitMix64
    z = (z ^ (z >> 30u)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27u)) * 0x94d049bb133111ebu;
    id = static_cast<int32_t>((z ^ (z >> 31u)) % static_cast<uint64_t>(plan.plan.model->vocab));
  }
  std::iota(blocks_.begin(), blocks_.end(), 1); // block 0 is the scratch block; activation blocks are behind the others
}

// Each sequence has blocks of its own.
absl::Status AnalyzerLaunches::fillMeta(const cost::CellKey &cell) {
  const int64_t blocks = (cell.sequence + plan_.plan.blockTokens - 1) / plan_.plan.blockTokens;
  const int64_t rows = cell.phase == cost::Phase::Prefill ? cell.sequence : 1;
  rows_.clear();
  for (int64_t s = 0; s < cell.batch; ++s)
    rows_.push_back(
        {.tokens = absl::MakeConstSpan(prompt_).subspan(static_cast<size_t>(s * rows), static_cast<size_t>(rows)),
         .firstPosition = cell.sequence - rows,
         .blocks = absl::MakeConstSpan(blocks_).subspan(static_cast<size_t>(s * blocks), static_cast<size_t>(blocks)),
         .sample = true,
         .requestSlot = static_cast<int32_t>(s)});
  return core::writeMeta(plan_.plan.metaLayout, plan_.plan.blockTokens, rows_, device_.meta());
}

absl::StatusOr<std::unique_ptr<core::Graph>> AnalyzerLaunches::make(const core::GraphKey &key) {
  absl::StatusOr<std::unique_ptr<core::Graph>> graph = device_.build(key);
  if (!graph.ok())
    return graph;
  RETURN_IF_ERROR(device_.upload(**graph));
  return graph;
}

absl::Status AnalyzerLaunches::launchIteration(core::Graph &graph, const cost::CellKey &cell) {
  RETURN_IF_ERROR(fillMeta(cell));
  ++iterations_;
  return device_.launch(graph);
}

// An iteration of a pair, or none of a transition, until it has ended.
absl::Status AnalyzerLaunches::launchOnce(core::Graph &graph, const std::optional<cost::CellKey> &cell) {
  absl::Status status = cell ? launchIteration(graph, *cell) : device_.launch(graph);
  if (absl::Status drained = device_.drain(); status.ok())
    status = drained;
  if (device_.holdsData()) // real time: the device's threads come to rest before the next launch
    std::this_thread::sleep_for(kRest);
  return status;
}

absl::Status AnalyzerLaunches::repeat(const core::GraphKey &key, const cost::CellKey &cell, double seconds,
                                      const std::vector<uint64_t> &samples,
                                      absl::FunctionRef<void(absl::Span<const core::StepTime>)> take,
                                      absl::FunctionRef<void()> clear) {
  absl::StatusOr<std::unique_ptr<core::Graph>> graph = make(key);
  if (!graph.ok())
    return graph.status();
  const auto budget = static_cast<int64_t>(seconds * 1e9);
  const auto once = [&] {
    absl::Status status = launchOnce(**graph, key.transition ? std::nullopt : std::optional(cell));
    if (status.ok())
      take(device_.lastTimes());
    return status;
  };
  clear();
  const int64_t start = device_.nowNs();
  RETURN_IF_ERROR(once());
  if ((device_.nowNs() - start) * kLongWarmUp < budget)
    clear();
  while (samples.empty() || (!settled(samples) && device_.nowNs() - start < budget))
    RETURN_IF_ERROR(once());
  return absl::OkStatus();
}

} // namespace headrace::profile
