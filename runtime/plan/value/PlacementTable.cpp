// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/value/PlacementTable.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "runtime/plan/value/Cycles.h"

namespace headrace::plan {

namespace {

// Two variants are of one bucket in one cycle.
bool sameCycle(const Plan &plan, size_t a, size_t b) {
  const Variant &x = plan.variants[a], &y = plan.variants[b];
  const Schedule &of = plan.schedules[x.schedule];
  return of.period > 1 &&
         std::tie(x.newTokens, x.sequences, x.context) == std::tie(y.newTokens, y.sequences, y.context) &&
         cycleOf(of) == cycleOf(plan.schedules[y.schedule]);
}

} // namespace

int64_t freedBytes(const Plan &plan, uint32_t placement) {
  const HomeBytes homes = weightBytesByHome(plan, placement), kv = kvBytesByHome(plan, placement);
  auto freed = static_cast<int64_t>(homes.host + kv.host);
  for (const Slot &slot : plan.placements[placement].slots)
    freed -= static_cast<int64_t>(slot.bytes);
  return freed;
}

uint64_t slowestNs(uint64_t ns, uint32_t permille) {
  constexpr uint64_t kMost = uint64_t{1} << 62u; // what a broken record says stays in range
  const uint64_t whole = ns / kPredicted, rest = ns % kPredicted;
  if (whole >= kMost / permille)
    return kMost;
  return whole * permille + (rest * permille + kPredicted - 1) / kPredicted;
}

// The largest x with slowestNs(x) <= sloNs: x permille <= 1000 sloNs, as sloNs is whole.
uint64_t predictedWithin(uint64_t sloNs, uint32_t permille) {
  const uint64_t whole = sloNs / permille, rest = sloNs % permille;
  return whole * kPredicted + rest * kPredicted / permille;
}

uint32_t slowestPermille(const Plan &plan, uint32_t placement) {
  const HomeBytes homes = weightBytesByHome(plan, placement);
  const bool moves = homes.host + kvBytesByHome(plan, placement).host > 0;
  return moves ? plan.slowestPermille : kPredicted;
}

std::optional<uint32_t> chosenPlacement(const Plan &plan, const IterationSize &size) {
  std::optional<uint32_t> largest;
  for (const BucketChoice &choice : plan.choices) { // by bucket, ascending
    const Variant &v = plan.variants[choice.variant];
    if (size.oneRowEach != bringsOneRowEach(plan, v))
      continue;
    largest = v.placement;
    if (v.newTokens >= size.tokens && v.sequences >= size.sequences && v.context >= size.context)
      break;
  }
  return largest;
}

PlacementTable::PlacementTable(const Plan &plan) : plan_(plan), byFreed_(plan.placements.size()) {
  std::iota(byFreed_.begin(), byFreed_.end(), 0U);
  for (const uint32_t placement : byFreed_) {
    freed_.push_back(freedBytes(plan, placement));
    permille_.push_back(slowestPermille(plan, placement));
    // Variants are sorted by placement.
    const auto at = std::partition_point(plan.variants.begin(), plan.variants.end(),
                                         [&](const Variant &v) { return v.placement < placement; });
    first_.push_back(static_cast<uint32_t>(at - plan.variants.begin()));
  }
  first_.push_back(static_cast<uint32_t>(plan.variants.size()));
  // The phases of a bucket stand one after the other.
  for (size_t begin = 0, end = 0; begin < plan.variants.size(); begin = end) {
    uint64_t most = 0;
    for (; end < plan.variants.size() && (end == begin || sameCycle(plan, begin, end)); ++end)
      most = std::max(most, plan.variants[end].predictedNs);
    predictedNs_.resize(end, most);
  }
  std::stable_sort(byFreed_.begin(), byFreed_.end(), [&](uint32_t a, uint32_t b) { return freed_[a] > freed_[b]; });
}

std::optional<uint32_t> PlacementTable::variantIn(uint32_t placement, const IterationSize &size) const {
  std::optional<uint32_t> best;
  for (uint32_t i = first_[placement]; i < first_[placement + 1]; ++i) {
    const Variant &v = plan_.variants[i];
    if (v.newTokens < size.tokens || v.sequences < size.sequences || v.context < size.context)
      continue;
    if (plan_.schedules[v.schedule].kvBlocks != 0)
      continue; // of fewer blocks than may be in use
    if (bringsOneRowEach(plan_, v) && !size.oneRowEach)
      continue;
    if (!best || predictedNs_[i] < predictedNs_[*best])
      best = i;
  }
  return best;
}

uint64_t PlacementTable::slowest(uint32_t variant) const {
  return slowestNs(predictedNs_[variant], permille_[plan_.variants[variant].placement]);
}

std::optional<uint32_t> PlacementTable::choose(const IterationSize &size, uint64_t sloNs) const {
  for (const uint32_t placement : byFreed_)
    if (const std::optional<uint32_t> variant = variantIn(placement, size);
        variant && (sloNs == 0 || slowest(*variant) <= sloNs))
      return variant;
  return std::nullopt;
}

std::optional<uint64_t> PlacementTable::leastNs(const IterationSize &size) const {
  std::optional<uint64_t> least;
  for (const uint32_t placement : byFreed_)
    if (const std::optional<uint32_t> variant = variantIn(placement, size))
      least = std::min(least.value_or(slowest(*variant)), slowest(*variant));
  return least;
}

} // namespace headrace::plan
