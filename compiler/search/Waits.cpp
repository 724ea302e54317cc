// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Waits.h"

#include <algorithm>

#include "runtime/plan/value/PlacementTable.h"
#include "runtime/sim/BucketTime.h"
#include "runtime/sim/TokenGaps.h"

namespace headrace::compiler {

std::vector<uint64_t> waitsFor(const plan::Plan &plan, absl::Span<const uint32_t> variants, bool gaps) {
  std::vector<uint64_t> waits;
  for (const uint32_t variant : variants)
    waits.push_back(sim::bucketNs(plan, variant));
  if (gaps) {
    const sim::TokenGaps between(plan);
    const std::vector<sim::TokenGaps::Longest> longest = between.longest(variants);
    for (size_t i = 0; i < variants.size(); ++i) {
      const auto &[ns, from, to] = longest[i];
      if (ns == 0)
        continue;
      const plan::Schedule &before = plan.schedules[plan.variants[from].schedule];
      const plan::Variant &next = plan.variants[to];
      core::InUse inUse = sim::mostInUse(plan, next);
      if (before.kvBlocks != 0 && plan.schedules[next.schedule].kvBlocks == 0)
        inUse.kvBlocks = std::min(inUse.kvBlocks, before.kvBlocks + next.sequences);
      const uint64_t head = std::min(between.of(to).headNs, sim::timesInUse(plan, to, inUse).headNs);
      waits[i] = std::max(waits[i], ns - between.of(to).headNs + head);
    }
  }
  for (size_t i = 0; i < variants.size(); ++i)
    waits[i] = plan::slowestNs(waits[i], plan::slowestPermille(plan, plan.variants[variants[i]].placement));
  return waits;
}

} // namespace headrace::compiler
