// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/VariantTable.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace headrace::core {

VariantTable::VariantTable(const plan::Plan &plan, const TransitionPaths &paths, const std::vector<bool> &built) {
  placements_.resize(plan.placements.size());
  for (uint32_t i = 0; i < plan.variants.size(); ++i) {
    if (!built[i])
      continue;
    const plan::Variant &variant = plan.variants[i];
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    OfPlacement &of = placements_[variant.placement];
    of.largest = {std::max(of.largest.tokens, variant.newTokens), std::max(of.largest.sequences, variant.sequences),
                  std::max(of.largest.context, variant.context)};
    const TransitionPaths::Config entry = paths.config(schedule.placement, schedule.entryState);
    auto group =
        std::find_if(of.groups.begin(), of.groups.end(), [&](const Group &other) { return other.entry == entry; });
    if (group == of.groups.end())
      group = of.groups.insert(group, {entry, {}});
    // That a placement has too few is found when it is entered.
    const int64_t kvBlocks = schedule.kvBlocks > 0 ? schedule.kvBlocks : std::numeric_limits<int64_t>::max();
    group->items.push_back({{variant.newTokens, variant.sequences, variant.context, kvBlocks},
                            variant.predictedNs,
                            i,
                            schedule.iterationClass == plan::IterationClass::Decode});
  }
  for (OfPlacement &of : placements_)
    for (Group &group : of.groups)
      std::sort(group.items.begin(), group.items.end(),
                [](const Item &a, const Item &b) { return std::tie(a.ns, a.variant) < std::tie(b.ns, b.variant); });
}

VariantTable::Chosen VariantTable::cheapest(uint32_t placement, const Bucket &bucket, const TransitionPaths &paths,
                                            TransitionPaths::Config now, uint64_t owedNs) const {
  Chosen best;
  uint64_t bestNs = 0, ownNs = 0, fastestNs = ~uint64_t{0};
  for (const Group &group : placements_[placement].groups) {
    if (!paths.reaches(now, group.entry))
      continue;
    const auto holds = [&](const Item &item) {
      return item.bucket.tokens >= bucket.tokens && item.bucket.sequences >= bucket.sequences &&
             item.bucket.context >= bucket.context && item.bucket.kvBlocks >= bucket.kvBlocks &&
             (!item.oneRowEach || bucket.tokens == bucket.sequences);
    };
    const auto item = std::find_if(group.items.begin(), group.items.end(), holds);
    if (item == group.items.end())
      continue;
    fastestNs = std::min(fastestNs, item->ns);
    const uint64_t path = paths.predictedNs(now, group.entry);
    const uint64_t ns = item->ns + path - std::min(path, owedNs);
    if (best.variant == plan::kNone || std::tie(ns, item->variant) < std::tie(bestNs, best.variant)) {
      best.variant = item->variant;
      bestNs = ns;
      ownNs = item->ns;
    }
  }
  best.excessNs = best.variant == plan::kNone ? 0 : ownNs - fastestNs;
  return best;
}

} // namespace headrace::core
