// SPDX-License-Identifier: Apache-2.0
#include "compiler/evaluate/Interfere.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace headrace::compiler {
namespace {

// When any copy runs: runs of time that do not touch, ascending.
std::vector<sim::StepTime> copying(const plan::Schedule &schedule, const sim::Timeline &timeline) {
  std::vector<sim::StepTime> copies;
  for (size_t step = 0; step < schedule.steps.size(); ++step)
    if (schedule.steps[step].kind == plan::StepKind::Copy)
      copies.push_back(timeline.steps[step]);
  std::sort(copies.begin(), copies.end(), [](const auto &a, const auto &b) { return a.startNs < b.startNs; });
  std::vector<sim::StepTime> runs;
  for (const sim::StepTime &copy : copies) {
    if (!runs.empty() && copy.startNs <= runs.back().endNs)
      runs.back().endNs = std::max(runs.back().endNs, copy.endNs);
    else
      runs.push_back(copy);
  }
  return runs;
}

} // namespace

bool interfere(const plan::Schedule &schedule, const cost::Interference &interference, const sim::Timeline &alone,
               std::vector<uint64_t> &durationsNs) {
  if (interference.computeFactor <= 1 && interference.wakeNs == 0)
    return false;
  const std::vector<sim::StepTime> copies = copying(schedule, alone);
  if (copies.empty())
    return false;
  // The last compute step that each step waits for.
  std::vector<uint64_t> afterCompute(schedule.steps.size(), 0);
  for (const plan::Edge &edge : schedule.edges)
    if (plan::computes(schedule.steps[edge.from].lane))
      afterCompute[edge.to] = std::max(afterCompute[edge.to], alone.steps[edge.from].endNs);
  std::array<uint64_t, plan::kLanes> last{}; // when a lane's last step ends
  for (size_t step = 0; step < schedule.steps.size(); ++step) {
    uint64_t &end = last[static_cast<size_t>(schedule.steps[step].lane)];
    end = std::max(end, alone.steps[step].endNs);
  }
  const auto late = [&](size_t step) {
    durationsNs[step] = std::min(cost::kLongestStepNs, durationsNs[step] + interference.wakeNs);
  };
  std::array<uint64_t, plan::kLanes> free{}; // when a lane's step before has ended
  std::array<bool, plan::kLanes> begun{};
  size_t run = 0; // the first that ends after the compute step starts
  for (size_t step = 0; step < schedule.steps.size(); ++step) {
    const plan::Step &s = schedule.steps[step];
    const sim::StepTime &time = alone.steps[step];
    const auto lane = static_cast<size_t>(s.lane);
    // A lane that another one outlasts has waited for the end of the iteration before.
    if (!std::exchange(begun[lane], true) && time.startNs == 0 && last[lane] < alone.iterationNs)
      late(step);
    if (s.kind == plan::StepKind::Copy) {
      if (time.startNs > free[lane] && time.startNs == afterCompute[step])
        late(step);
    } else if (plan::computes(s.lane)) {
      while (run < copies.size() && copies[run].endNs <= time.startNs)
        ++run;
      uint64_t shared = 0;
      for (size_t r = run; r < copies.size() && copies[r].startNs < time.endNs; ++r)
        shared += std::min(time.endNs, copies[r].endNs) - std::max(time.startNs, copies[r].startNs);
      const double longer = std::ceil((interference.computeFactor - 1) * static_cast<double>(shared));
      durationsNs[step] = longer < static_cast<double>(cost::kLongestStepNs)
                              ? std::min(cost::kLongestStepNs, durationsNs[step] + static_cast<uint64_t>(longer))
                              : cost::kLongestStepNs;
    }
    free[lane] = time.endNs;
  }
  return true;
}

} // namespace headrace::compiler
