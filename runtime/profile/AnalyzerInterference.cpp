// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile/AnalyzerInterference.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace headrace::profile {
namespace {

constexpr int kTurns = 5;

struct Span {
  int64_t start = 0, end = 0;
  bool empty() const { return start == end; }
  void add(const core::StepTime &time) {
    start = empty() ? time.startNs : std::min(start, time.startNs);
    end = std::max(end, time.endNs);
  }
  uint64_t ns() const { return lasted(start, end); }
};

Span spanOf(const plan::Schedule &schedule, absl::Span<const core::StepTime> times, bool compute) {
  Span span;
  for (size_t i = 0; i < times.size(); ++i)
    if (compute ? plan::computes(schedule.steps[i].lane) : schedule.steps[i].kind == plan::StepKind::Copy)
      span.add(times[i]);
  return span;
}

// An iteration beside copies, and the share of it that they ran beside.
struct Beside {
  uint64_t ns = 0;
  double covered = 0;

  // Copies that end before the iteration does disturb only a part of it: what they cost is put on the whole, but at
  // most doubled, so that a disturbance of something else is not taken for theirs many times over.
  uint64_t whole(uint64_t aloneNs) const {
    if (ns <= aloneNs || covered == 0)
      return ns;
    return aloneNs + static_cast<uint64_t>(static_cast<double>(ns - aloneNs) / std::max(0.5, covered));
  }
};

} // namespace

absl::StatusOr<cost::MeasuredInterference> measureInterference(const AnalyzerPlan &plan, AnalyzerLaunches &launches,
                                                               double seconds) {
  const auto at = std::find(plan.cells.begin(), plan.cells.end(), plan.besideCell);
  if (at == plan.cells.end() || !plan.starts)
    return absl::InternalError("the analyzer's plan lacks the pair that runs beside copies");
  const core::GraphKey aloneKey = plan.cellGraphs[static_cast<size_t>(at - plan.cells.begin())];
  const core::GraphKey besideKey = plan.copies.back().beside[0];
  const plan::Schedule &aloneSchedule = plan.plan.schedules[plan.schedule(aloneKey)];
  const plan::Schedule &besideSchedule = plan.plan.schedules[plan.schedule(besideKey)];
  const plan::Schedule &startSchedule = plan.plan.schedules[plan.schedule(*plan.starts)];

  std::vector<uint64_t> alone, turn; // all turns' iterations, and one's
  std::vector<Beside> beside, turnBeside;
  for (int i = 0; i < kTurns; ++i) {
    absl::Status status = launches.repeat(
        aloneKey, plan.besideCell, seconds, turn,
        [&](absl::Span<const core::StepTime> times) {
          turn.push_back(std::max<uint64_t>(1, spanOf(aloneSchedule, times, true).ns()));
        },
        [&] { turn.clear(); });
    alone.insert(alone.end(), turn.begin(), turn.end());
    if (status.ok())
      status = launches.repeat(
          besideKey, plan.besideCell, seconds, turn,
          [&](absl::Span<const core::StepTime> times) {
            const Span iteration = spanOf(besideSchedule, times, true), copies = spanOf(besideSchedule, times, false);
            const uint64_t ns = std::max<uint64_t>(1, iteration.ns());
            const uint64_t shared =
                lasted(std::max(iteration.start, copies.start), std::min(iteration.end, copies.end));
            turn.push_back(ns);
            turnBeside.push_back({ns, static_cast<double>(shared) / static_cast<double>(ns)});
          },
          [&] {
            turn.clear();
            turnBeside.clear();
          });
    if (!status.ok())
      return status;
    beside.insert(beside.end(), turnBeside.begin(), turnBeside.end());
  }

  cost::MeasuredInterference measured;
  measured.repetitions = static_cast<uint32_t>(std::min(alone.size(), beside.size()));
  measured.computeAlone = cost::summarise(std::move(alone));
  std::vector<uint64_t> whole;
  whole.reserve(beside.size());
  for (const Beside &one : beside)
    whole.push_back(one.whole(measured.computeAlone.medianNs));
  measured.computeBeside = cost::summarise(std::move(whole));

  std::vector<uint64_t> starts;
  absl::Status status = launches.repeat(
      *plan.starts, plan.besideCell, seconds, starts,
      [&](absl::Span<const core::StepTime> times) {
        for (const plan::Edge &edge : startSchedule.edges)
          if (startSchedule.steps[edge.to].kind == plan::StepKind::Copy &&
              times[edge.to - 1].endNs <= times[edge.from].endNs)
            starts.push_back(lasted(times[edge.from].endNs, times[edge.to].startNs));
        if (starts.empty()) // each was held up by the one before
          starts.push_back(0);
      },
      [&] { starts.clear(); });
  if (!status.ok())
    return status;
  measured.copyStart = cost::summarise(std::move(starts));
  return measured;
}

} // namespace headrace::profile
