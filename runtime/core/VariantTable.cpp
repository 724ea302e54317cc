// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/VariantTable.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "runtime/plan/value/Cycles.h"

namespace headrace::core {
namespace {

// The variants of a cycle's phases for one bucket.
using BucketOfCycle = std::tuple<plan::CycleKey, int64_t, int64_t, int64_t>;
BucketOfCycle bucketOfCycle(const plan::Schedule &schedule, const plan::Variant &variant) {
  return {plan::cycleOf(schedule), variant.newTokens, variant.sequences, variant.context};
}

struct Cycle {
  uint64_t ns = 0, phases = 0; // the sum
  TransitionPaths::Config lowestEntry = plan::kNone;
};

// Of every variant whose schedule is one of several phases.
std::map<BucketOfCycle, Cycle> cyclesOf(const plan::Plan &plan, const TransitionPaths &paths) {
  std::map<BucketOfCycle, Cycle> cycles;
  for (const plan::Variant &variant : plan.variants) {
    const plan::Schedule &schedule = plan.schedules[variant.schedule];
    if (schedule.period == 1)
      continue;
    Cycle &cycle = cycles[bucketOfCycle(schedule, variant)];
    cycle.ns += variant.predictedNs;
    ++cycle.phases;
    cycle.lowestEntry = std::min(cycle.lowestEntry, paths.config(schedule.placement, schedule.entryState));
  }
  return cycles;
}

} // namespace

VariantTable::VariantTable(const plan::Plan &plan, const TransitionPaths &paths, const std::vector<bool> &built) {
  placements_.resize(plan.placements.size());
  const std::map<BucketOfCycle, Cycle> cycles = cyclesOf(plan, paths);
  std::vector<bool> onDevice;
  onDevice.reserve(plan.schedules.size());
  for (const plan::Schedule &schedule : plan.schedules)
    onDevice.push_back(std::none_of(schedule.steps.begin(), schedule.steps.end(),
                                    [](const plan::Step &step) { return step.lane == plan::Lane::Cpu; }));
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
    TransitionPaths::Config inCycle = plan::kNone;
    if (const auto cycle = cycles.find(bucketOfCycle(schedule, variant)); cycle != cycles.end()) {
      ns = cycle->second.ns / cycle->second.phases;
      inCycle = cycle->second.lowestEntry;
    }
    // That a placement has too few is found when it is entered.
    const int64_t kvBlocks = schedule.kvBlocks > 0 ? schedule.kvBlocks : std::numeric_limits<int64_t>::max();
    group->items.push_back({{variant.newTokens, variant.sequences, variant.context, kvBlocks},
                            ns,
                            i,
                            plan::bringsOneRowEach(plan, variant),
                            onDevice[variant.schedule],
                            inCycle});
  }
  for (OfPlacement &of : placements_)
    for (Group &group : of.groups)
      std::sort(group.items.begin(), group.items.end(), [](const Item &a, const Item &b) {
        return std::tie(a.onDevice, a.ns, a.variant) < std::tie(b.onDevice, b.ns, b.variant);
      });
}

const VariantTable::Item *VariantTable::firstThatHolds(const Group &group, const Bucket &bucket,
                                                       TransitionPaths::Config notOf) {
  const auto item = std::find_if(group.items.begin(), group.items.end(), [&](const Item &one) {
    return one.bucket.tokens >= bucket.tokens && one.bucket.sequences >= bucket.sequences &&
           one.bucket.context >= bucket.context && one.bucket.kvBlocks >= bucket.kvBlocks &&
           (!one.oneRowEach || bucket.tokens == bucket.sequences) && (notOf == plan::kNone || one.cycle != notOf);
  });
  return item == group.items.end() ? nullptr : &*item;
}

VariantTable::Chosen VariantTable::cheapest(uint32_t placement, const Bucket &bucket, const TransitionPaths &paths,
                                            TransitionPaths::Config now, uint64_t owedNs) const {
  Chosen best;
  uint64_t bestNs = 0, ownNs = 0, fastestNs = ~uint64_t{0};
  bool onDevice = true;                          // the best one
  TransitionPaths::Config inCycle = plan::kNone; // the cycle that goes on
  for (const Group &group : placements_[placement].groups)
    if (const Item *const item = group.entry == now ? firstThatHolds(group, bucket, plan::kNone) : nullptr)
      inCycle = item->cycle;
  for (const Group &group : placements_[placement].groups) {
    if (!paths.reaches(now, group.entry))
      continue;
    const Item *const item = firstThatHolds(group, bucket, group.entry == now ? plan::kNone : inCycle);
    if (item == nullptr || (item->onDevice && !onDevice))
      continue;
    if (!item->onDevice && onDevice) {
      onDevice = false;
      best.variant = plan::kNone; // none of those that attend on the device
      fastestNs = ~uint64_t{0};
    }
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
