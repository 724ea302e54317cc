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
      model::blocksOfKinds(plan.actShare, blocks, variant.sequences, std::max<int64_t>(1, ofOne));
  core::InUse inUse;
  inUse.kvBlocks = std::min(of.kv + 1, plan.kvBlocks);
  inUse.actBlocks = std::min(of.act, plan.actBlocks);
  inUse.rows = variant.newTokens;
  inUse.writtenEnd = inUse.kvBlocks;
  return inUse;
}

uint64_t bucketNs(const plan::Plan &plan, uint32_t of) {
  const plan::Variant &variant = plan.variants[of];
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  const auto sized =
      sizedTimes(plan, schedule, variant.durationsNs, variant.newTokens, linkRates(plan.hardware, /*linkBandwidth=*/0));
  if (!sized.ok() || sized->empty())
    return variant.predictedNs;
  std::vector<uint64_t> ns = variant.durationsNs;
  const core::LaunchInUse launch(mostInUse(plan, variant));
  for (const SizedTime &copy : *sized)
    ns[copy.step] = copy.nsOf(core::bytesInUse(copy.size, launch));
  Timeline timeline;
  Simulator(schedule).run(ns, plan.hardware.duplexShare(), timeline);
  return std::min(variant.predictedNs, timeline.iterationNs);
}

} // namespace headrace::sim
