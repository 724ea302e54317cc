// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/PaddedRows.h"

#include <algorithm>

namespace headrace::serve {

PaddedRows::PaddedRows(const plan::Plan &plan) : placements_(plan.placements.size()) {
  if (plan.hardware.kind != model::DeviceKind::Cuda)
    return;
  for (const plan::Variant &variant : plan.variants) {
    const bool mixed = plan.schedules[variant.schedule].iterationClass == plan::IterationClass::Mixed;
    Placement &of = placements_[variant.placement];
    of.buckets.push_back({variant.newTokens, variant.sequences, variant.context, mixed, variant.predictedNs});
    if (mixed)
      of.tokens.push_back(variant.newTokens);
  }
  for (Placement &of : placements_) {
    std::stable_sort(of.buckets.begin(), of.buckets.end(),
                     [](const Bucket &a, const Bucket &b) { return a.ns < b.ns; });
    std::sort(of.tokens.begin(), of.tokens.end());
    of.tokens.erase(std::unique(of.tokens.begin(), of.tokens.end()), of.tokens.end());
  }
}

uint64_t PaddedRows::priceOf(const Placement &placement, const plan::IterationSize &size) {
  for (const Bucket &bucket : placement.buckets)
    if (bucket.tokens >= size.tokens && bucket.sequences >= size.sequences && bucket.context >= size.context &&
        (bucket.mixed || size.tokens == size.sequences))
      return bucket.ns;
  return kNoBucket;
}

int64_t PaddedRows::cut(uint32_t index, const plan::IterationSize &size) const {
  const Placement &placement = placements_[index];
  const auto above = std::lower_bound(placement.tokens.begin(), placement.tokens.end(), size.tokens);
  if (above == placement.tokens.begin() || (above != placement.tokens.end() && *above == size.tokens))
    return size.tokens;
  const int64_t below = *std::prev(above);
  if (below <= size.sequences)
    return size.tokens;
  const uint64_t all = priceOf(placement, size);
  const uint64_t first = priceOf(placement, {below, size.sequences, size.context});
  // The rest comes with a row of everybody else, in an iteration that is there anyway where they decode.
  const uint64_t rest = priceOf(placement, {size.tokens - below + size.sequences - 1, size.sequences, size.context});
  return first != kNoBucket && rest != kNoBucket && first + rest < all ? below : size.tokens;
}

} // namespace headrace::serve
