// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/VariantTable.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <tuple>

namespace headrace::core {
namespace {

// What the variants of a cycle's phases have in common: its schedules', then the bucket.
using CycleKey = std::array<int64_t, 10>;
CycleKey cycleKey(const plan::Schedule &schedule, const plan::Variant &variant) {
  return {schedule.placement,     static_cast<int64_t>(schedule.iterationClass),
          schedule.kvBlocks,      schedule.maxTokens,
          schedule.maxSequences,  schedule.maxContext,
          schedule.period,        variant.newTokens,
          variant.sequences,      variant.context};
}

struct Cycle {
  uint64_t ns = 0, phases = 0; // the sum
  TransitionPaths::Config lowestEntry = plan::kNone;
};

// Of every variant whose schedule is one of several phases.
std::map<CycleKey, Cycle> cyclesOf(const plan::Plan &plan, const TransitionPaths &paths) {
  std::map<CycleKey, Cycle> cycles;
  for (const plan::Variant &variant : plan.variants) {
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    if (schedule.period == 1)
      continue;
    Cycle &cycle = cycles[cycleKey(schedule, variant)];
    cycle.ns += variant.predictedNs;
    ++cycle.phases;
    cycle.lowestEntry = std::min(cycle.lowestEntry, paths.config(schedule.placement, schedule.entryState));
  }
  return cycles;
}

} // namespace

VariantTable::VariantTable(const plan::Plan &plan, const TransitionPaths &paths, const std::vector<bool> &built) {
  placements_.resize(plan.placements.size());
  const std::map<CycleKey, Cycle> cycles = cyclesOf(plan, paths);
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
    uint64_t ns = variant.predictedNs;
    if (const auto cycle = cycles.find(cycleKey(schedule, variant)); cycle != cycles.end()) {
      ns = cycle->second.ns / cycle->second.phases;
      group->cycle = cycle->second.lowestEntry;
    }
    // That a placement has too few is found when it is entered.
    const int64_t kvBlocks = schedule.kvBlocks > 0 ? schedule.kvBlocks : std::numeric_limits<int64_t>::max();
    group->items.push_back({{variant.newTokens, variant.sequences, variant.context, kvBlocks},
                            ns,
                            i,
                            schedule.iterationClass == plan::IterationClass::Decode});
  }
  for (OfPlacement &of : placements_)
    for (Group &group : of.groups)
      std::sort(group.items.begin(), group.items.end(),
                [](const Item &a, const Item &b) { return std::tie(a.ns, a.variant) < std::tie(b.ns, b.variant); });
}

const VariantTable::Item *VariantTable::firstThatHolds(const Group &group, const Bucket &bucket) {
  const auto item = std::find_if(group.items.begin(), group.items.end(), [&](const Item &one) {
    return one.bucket.tokens >= bucket.tokens && one.bucket.sequences >= bucket.sequences &&
           one.bucket.context >= bucket.context && one.bucket.kvBlocks >= bucket.kvBlocks &&
           (!one.oneRowEach || bucket.tokens == bucket.sequences);
  });
  return item == group.items.end() ? nullptr : &*item;
}

VariantTable::Chosen VariantTable::cheapest(uint32_t placement, const Bucket &bucket, const TransitionPaths &paths,
                                            TransitionPaths::Config now, uint64_t owedNs) const {
  Chosen best;
  uint64_t bestNs = 0, ownNs = 0, fastestNs = ~uint64_t{0};
  TransitionPaths::Config inCycle = plan::kNone; // the cycle that goes on
  for (const Group &group : placements_[placement].groups)
    if (group.entry == now && group.cycle != plan::kNone && firstThatHolds(group, bucket) != nullptr)
      inCycle = group.cycle;
  for (const Group &group : placements_[placement].groups) {
    if (!paths.reaches(now, group.entry) || (inCycle != plan::kNone && group.cycle == inCycle && group.entry != now))
      continue;
    const Item *const item = firstThatHolds(group, bucket);
    if (item == nullptr)
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
