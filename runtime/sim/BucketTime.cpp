// SPDX-License-Identifier: Apache-2.0
#include "runtime/sim/BucketTime.h"

#include <algorithm>
#include <vector>

#include "runtime/sim/Simulator.h"
#include "runtime/sim/TimedSchedule.h"

namespace headrace::sim {

core::InUse mostInUse(const plan::Plan &plan, const plan::Variant &variant) {
  const int64_t ofOne = (variant.context + plan.blockTokens - 1) / plan.blockTokens;
  const int64_t blocks = std::min(variant.sequences * ofOne, plan.mostContextBlocks());
  const model::BlocksOfKinds of =
      model::blocksOfKinds(plan.actRatio, blocks, variant.sequences, std::max<int64_t>(1, ofOne));
  core::InUse inUse;
  inUse.kvBlocks = std::min(of.kv + 1, plan.kvBlocks);
  inUse.actBlocks = std::min(of.act, plan.actBlocks);
  inUse.rows = variant.newTokens;
  inUse.writtenEnd = inUse.kvBlocks;
  return inUse;
}

InUseTimes timesInUse(const plan::Plan &plan, uint32_t of, const core::InUse &inUse) {
  const plan::Variant &variant = plan.variants[of];
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  std::vector<uint64_t> ns = variant.durationsNs;
  const auto sized = sizedTimes(plan, schedule, ns, variant.newTokens, linkRates(plan.hardware, /*linkBandwidth=*/0));
  if (sized.ok()) {
    const core::LaunchInUse launch(inUse);
    for (const SizedTime &copy : *sized)
      ns[copy.step] = copy.nsOf(core::bytesInUse(copy.size, launch));
  }
  Timeline timeline;
  Simulator(plan, schedule).run(ns, cost::sharingOf(plan.hardware), timeline);
  return {timeline.iterationNs, timeline.publishNs};
}

uint64_t bucketNs(const plan::Plan &plan, uint32_t of) {
  const plan::Variant &variant = plan.variants[of];
  return std::min(variant.predictedNs, timesInUse(plan, of, mostInUse(plan, variant)).iterationNs);
}

} // namespace headrace::sim
