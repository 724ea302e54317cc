// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/plan/proof/Playback.h"

namespace headrace::plan {

// Time is counted in compute steps: position k is while the k-th compute step runs, and one more follows the last.
// Copies are taken to be done as soon as they may start, which is between two compute steps: behind the last that they
// are known to wait for. So what a copy brings is live from the position after that step, and what one writes back to
// the position of that step.
uint64_t largestLiveBytes(const Plan &plan, uint32_t index) {
  const Schedule &schedule = plan.schedules[index];
  const auto steps = static_cast<uint32_t>(schedule.steps.size());
  const Clocks clocks(schedule);
  const CacheHomes caches(plan);
  Playback playback(plan, caches, index, clocks);
  playback.run(nullptr);

  constexpr auto kCompute = static_cast<size_t>(Lane::Compute);
  std::vector<uint32_t> compute;              // steps by position
  std::vector<uint32_t> positionOf(steps, 0); // of a compute step; of another, of the last compute step before it
  for (uint32_t step = 0; step < steps; ++step) {
    if (clocks.lane(step) == kCompute)
      compute.push_back(step);
    positionOf[step] = compute.empty() ? 0 : static_cast<uint32_t>(compute.size() - 1);
  }
  const auto last = static_cast<uint32_t>(compute.size()); // the position behind the last compute step
  std::vector<int64_t> change(last + 2, 0);
  const auto live = [&](uint32_t from, uint32_t to, uint64_t bytes) {
    change[from] += static_cast<int64_t>(bytes);
    change[to + 1] -= static_cast<int64_t>(bytes);
  };

  for (const Extent &extent : plan.placements[schedule.placement].extents)
    if (extent.space == Space::Device)
      live(0, last, extent.bytes);

  for (const Life &life : playback.lives()) {
    uint32_t from = 0;
    if (life.writer >= 0 && clocks[life.writer][kCompute] >= 0)
      from = positionOf[clocks[life.writer][kCompute]] + 1;
    uint32_t to = from; // one that nobody reads takes its place all the same
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (life.readers[lane] < 0)
        continue;
      const int32_t after = lane == kCompute ? life.readers[lane] : clocks[life.readers[lane]][kCompute];
      if (after >= 0)
        to = std::max(to, positionOf[after]);
    }
    live(from, life.atExit ? last : to, life.bytes);
  }

  std::vector<std::pair<uint32_t, uint32_t>> use(schedule.locals.size(), {kNone, 0}); // first and last position
  for (uint32_t step = 0; step < steps; ++step) {
    const Step &s = schedule.steps[step];
    if (s.lane != Lane::Compute)
      continue; // rows that are copied to the host are so behind the step that has made them
    for (uint32_t i = s.firstOperand; i < s.firstOperand + s.operandCount; ++i)
      if (const uint32_t buffer = schedule.operands[i].buffer;
          buffer >= plan.buffers.size() && schedule.operands[i].space == Space::Device) {
        auto &[first, latest] = use[buffer - plan.buffers.size()];
        first = std::min(first, positionOf[step]);
        latest = std::max(latest, positionOf[step]);
      }
  }
  for (size_t i = 0; i < use.size(); ++i)
    if (use[i].first != kNone)
      live(use[i].first, use[i].second, schedule.locals[i].buffer.bytes);

  int64_t now = 0, largest = 0;
  for (const int64_t step : change) {
    now += step;
    largest = std::max(largest, now);
  }
  return static_cast<uint64_t>(largest);
}

} // namespace headrace::plan
