// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/LaunchPrices.h"

#include "runtime/sim/SimDevice.h"
#include "runtime/sim/TimedSchedule.h"

namespace headrace::sim {

LaunchPrices::LaunchPrices(const plan::Plan &plan, double linkBandwidth)
    : plan_(plan), linkBandwidth_(linkBandwidth), layout_(model::layoutWeights(plan.model)),
      roofline_(plan.model, overLink(plan.hardware, linkBandwidth), plan.activationDtype, plan.kvEncoding) {}

LaunchedSteps LaunchPrices::paced(const plan::Schedule &schedule, const std::vector<uint64_t> &durationsNs) const {
  LaunchedSteps launched;
  launched.ns = pacedDurations(schedule, durationsNs, plan_.hardware, linkBandwidth_);
  for (const plan::Step &step : schedule.steps)
    launched.linkBytes.push_back(step.linkBytes);
  return launched;
}

void LaunchPrices::sizeCopies(const plan::Schedule &schedule, int64_t newTokens, const core::LaunchInUse &inUse,
                              LaunchedSteps &launched) const {
  const absl::StatusOr<std::vector<SizedTime>> sized =
      sizedTimes(plan_, schedule, launched.ns, newTokens, linkRates(plan_.hardware, linkBandwidth_));
  if (!sized.ok()) // no device builds such a schedule: there is no launch
    return;
  for (const SizedTime &copy : *sized) {
    const uint64_t bytes = core::bytesInUse(copy.size, inUse);
    launched.ns[copy.step] = copy.nsOf(bytes);
    launched.linkBytes[copy.step] = bytes;
  }
}

LaunchedSteps LaunchPrices::of(uint32_t index, const core::LaunchInUse &inUse, absl::Span<const cost::Rows> rows) {
  const plan::Variant &variant = plan_.variants[index];
  const plan::Schedule &schedule = plan_.schedules[variant.schedule];
  LaunchedSteps launched = paced(schedule, variant.durationsNs);
  if (!rows.empty()) {
    const auto [it, added] = prices_.try_emplace(index, plan_, layout_, roofline_, variant, launched.ns);
    it->second.price(rows);
    it->second.writeTo(absl::MakeSpan(launched.ns));
  }
  sizeCopies(schedule, variant.newTokens, inUse, launched);
  return launched;
}

LaunchedSteps LaunchPrices::ofTransition(uint32_t index, const core::LaunchInUse &inUse) const {
  const plan::Transition &transition = plan_.transitions[index];
  const plan::Schedule &schedule = plan_.schedules[transition.schedule];
  LaunchedSteps launched = paced(schedule, transition.durationsNs);
  sizeCopies(schedule, 0, inUse, launched);
  return launched;
}

} // namespace headrace::sim
