// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile/AnalyzerSpread.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/profile/Repeat.h"

namespace headrace::profile {
namespace {

constexpr size_t kTurn = 300, kLeastSamples = 50, kWarmUp = 20; // iterations
constexpr size_t kMostTurns = 8;

// What iterations in a row take, from tokens to tokens.
absl::StatusOr<std::vector<uint64_t>> iterationsOf(const core::GraphKey &key, const cost::CellKey &cell,
                                                   core::Device &device, AnalyzerLaunches &launches, double seconds) {
  const absl::StatusOr<std::unique_ptr<core::Graph>> graph = launches.make(key);
  if (!graph.ok())
    return graph.status();
  const auto budget = static_cast<int64_t>(seconds * 1e9);
  std::vector<uint64_t> samples;
  int64_t start = 0, before = 0; // when the tokens of an iteration were visible
  absl::Status status = launches.launchIteration(**graph, cell);
  for (size_t i = 0; status.ok() && samples.size() < kTurn; ++i) {
    status = launches.launchIteration(**graph, cell);
    const uint64_t read = launches.iterations() - 1;
    if (status.ok())
      status = device.awaitTokens(read).status();
    if (!status.ok())
      break;
    const int64_t now = device.tokensVisibleNs(read);
    if (i == kWarmUp)
      start = now;
    if (i > kWarmUp)
      samples.push_back(static_cast<uint64_t>(std::max<int64_t>(1, now - before)));
    if (samples.size() >= kLeastSamples && now - start >= budget)
      break;
    before = now;
  }
  if (absl::Status drained = device.drain(); status.ok())
    status = drained;
  if (!status.ok())
    return status;
  return samples;
}

} // namespace

uint64_t predictIterationNs(const cost::Record &record, const cost::Cell &cell, const plan::Schedule &schedule,
                            absl::Span<const std::optional<cost::Site>> sites) {
  double factor = 1;
  if (const cost::MeasuredInterference &measured = record.interference; measured.repetitions > 0)
    factor = std::max(1.0, static_cast<double>(measured.computeBeside.medianNs) /
                               static_cast<double>(measured.computeAlone.medianNs));
  std::vector<uint64_t> ready(schedule.steps.size(), 0);
  std::array<uint64_t, plan::kLanes> free{};
  std::vector<plan::Edge> edges(schedule.edges.begin(), schedule.edges.end());
  std::stable_sort(edges.begin(), edges.end(), [](const auto &a, const auto &b) { return a.from < b.from; });
  auto edge = edges.begin();
  uint64_t end = 0;
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const plan::Step &step = schedule.steps[i];
    uint64_t &lane = free[static_cast<size_t>(step.lane)];
    uint64_t ns = 0;
    if (step.kind == plan::StepKind::Copy)
      ns = cost::transferNs(record, step.linkBytes, plan::toDevice(step.lane)) +
           (ready[i] > lane ? record.interference.copyStart.medianNs : 0);
    else if (sites[i] && step.kind == plan::StepKind::Compute) // a Publish is in the time of the sampling before it
      ns = static_cast<uint64_t>(std::llround(static_cast<double>(cell.at(*sites[i]).medianNs) * factor));
    lane = std::max(lane, ready[i]) + ns;
    end = std::max(end, lane);
    for (; edge != edges.end() && edge->from == i; ++edge)
      ready[edge->to] = std::max(ready[edge->to], lane);
  }
  return end;
}

uint64_t slowestOf(std::vector<uint64_t> samples) {
  const auto count = static_cast<double>(samples.size());
  const double rank = std::ceil(0.99 * count + std::sqrt(0.99 * 0.01 * count));
  const size_t at = std::min(static_cast<size_t>(rank), samples.size()) - 1;
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(at), samples.end());
  return samples[at];
}

absl::StatusOr<cost::MeasuredSpread> measureSpread(const cost::Record &record, const AnalyzerPlan &plan,
                                                   core::Device &device, AnalyzerLaunches &launches, double seconds) {
  const auto copied = std::find_if(plan.waiting.begin(), plan.waiting.end(), [&](const auto &w) {
    return record.find(w.cell.phase, w.cell.batch, w.cell.sequence) != nullptr;
  });
  const auto at =
      copied == plan.waiting.end() ? plan.cells.end() : std::find(plan.cells.begin(), plan.cells.end(), copied->cell);
  if (at == plan.cells.end())
    return absl::InternalError("the analyzer's plan lacks the pair whose layers wait for copies");
  const cost::Cell &cell = *record.find(at->phase, at->batch, at->sequence);
  std::vector<uint64_t> resident, waiting;
  const auto turn = [&](const core::GraphKey &key, std::vector<uint64_t> &out) -> absl::Status {
    const absl::StatusOr<std::vector<uint64_t>> samples = iterationsOf(key, *at, device, launches, seconds / 2);
    if (samples.ok())
      out.insert(out.end(), samples->begin(), samples->end());
    return samples.status();
  };
  const auto steady = [](const std::vector<uint64_t> &samples) { return slowestOf(samples) == medianOf(samples); };
  const core::GraphKey alone = plan.cellGraphs[static_cast<size_t>(at - plan.cells.begin())];
  // In turns, so that what disturbs the machine for long finds both.
  const int64_t start = device.nowNs();
  for (size_t n = 1; n <= kMostTurns; ++n) {
    absl::Status status = turn(alone, resident);
    if (status.ok())
      status = turn(copied->graph, waiting);
    if (!status.ok())
      return status;
    if (steady(resident) && steady(waiting)) // a device that nothing disturbs: simulated
      break;
    const auto passed = static_cast<double>(device.nowNs() - start);
    if (passed * static_cast<double>(n + 1) / static_cast<double>(n) > seconds * 1e9)
      break;
  }
  cost::Record undisturbed = record; // nothing runs beside a resident iteration
  undisturbed.interference = {};
  const auto summary = [&](const core::GraphKey &key, const cost::Record &prices,
                           const std::vector<uint64_t> &samples) {
    const plan::Schedule &schedule = plan.plan.schedules[plan.schedule(key)];
    const uint64_t predicted = predictIterationNs(prices, cell, schedule, sitesOf(plan.plan, schedule));
    return cost::MeasuredSpread::Iterations{std::max<uint64_t>(1, predicted), medianOf(samples), slowestOf(samples)};
  };
  return cost::MeasuredSpread{.repetitions = static_cast<uint32_t>(std::min(resident.size(), waiting.size())),
                              .resident = summary(alone, undisturbed, resident),
                              .waiting = summary(copied->graph, record, waiting)};
}

} // namespace headrace::profile
