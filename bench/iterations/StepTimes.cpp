// SPDX-License-Identifier: Apache-2.0
#include "bench/iterations/StepTimes.h"

#include <algorithm>

#include "bench/iterations/Player.h"
#include "runtime/base/StatusMacros.h"

namespace headrace::bench {

absl::StatusOr<StepTimesOf> stepTimes(core::Runtime &runtime, uint32_t placement, const Cell &cell, int count) {
  std::vector<StepTimesOf> all;
  const auto look = [&]() -> absl::Status {
    RETURN_IF_ERROR(runtime.device().drain());
    const auto times = runtime.device().lastTimes();
    if (times.empty())
      return absl::FailedPreconditionError("the device measures no steps");
    StepTimesOf one{.steps = {times.begin(), times.end()}};
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (const core::StepTime &step : one.steps) {
      first = std::min(first, step.startNs);
      last = std::max(last, step.endNs);
    }
    one.ms = static_cast<double>(last - first) * 1e-6;
    all.push_back(std::move(one));
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(played, play(runtime, placement, cell, {.most = count, .seconds = 30, .inFlight = 1}, look));
  std::sort(all.begin(), all.end(), [](const StepTimesOf &a, const StepTimesOf &b) { return a.ms < b.ms; });
  StepTimesOf median = std::move(all[(all.size() - 1) / 2]);
  median.variant = played.variant;
  return median;
}

} // namespace headrace::bench
