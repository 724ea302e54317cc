// SPDX-License-Identifier: Apache-2.0
#include "bench/iterations/Predicted.h"

#include "runtime/sim/LaunchPrices.h"
#include "runtime/sim/Simulator.h"

namespace headrace::bench {

double predictedMs(const plan::Plan &plan, uint32_t variant, const Cell &cell) {
  const int64_t pairs = cell.tokens * cell.context - cell.tokens * (cell.tokens - 1) / 2; // of a sequence
  const cost::Rows rows{.tokens = static_cast<uint64_t>(cell.sequences * cell.tokens),
                        .sampled = static_cast<uint64_t>(cell.sequences),
                        .contexts = static_cast<uint64_t>(cell.sequences * cell.context),
                        .pairs = static_cast<uint64_t>(cell.sequences * pairs)};
  const plan::Schedule &schedule = plan.schedules[plan.variants[variant].schedule];
  const sim::LaunchedSteps launched =
      sim::LaunchPrices(plan).of(variant, core::LaunchInUse(), absl::MakeConstSpan(&rows, 1));
  const sim::Timeline timeline = sim::Simulator(plan, schedule).run(launched.ns, cost::sharingOf(plan.hardware));
  return static_cast<double>(timeline.iterationNs) * 1e-6;
}

} // namespace headrace::bench
