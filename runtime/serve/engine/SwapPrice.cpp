// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/SwapPrice.h"

#include <algorithm>
#include <cmath>

namespace headrace::serve {

SwapPrice::SwapPrice(const plan::Plan &plan) : placements_(plan.placements.size()) {
  for (const plan::Variant &variant : plan.variants) {
    Placement &placement = placements_[variant.placement];
    const bool mixed = plan.schedules[variant.schedule].iterationClass == plan::IterationClass::Mixed;
    (mixed ? placement.mixed : placement.decode).push_back({variant.newTokens, variant.context, variant.predictedNs});
  }
  const model::Hardware &hardware = plan.hardware;
  h2dNs_ = 1e9 / (hardware.h2dBandwidth * hardware.linkEfficiency);
  d2hNs_ = 1e9 / (hardware.d2hBandwidth * hardware.linkEfficiency);
  latencyNs_ = static_cast<uint64_t>(std::llround(std::max(hardware.copyLatency, 0.0) * 1e9));
}

uint64_t SwapPrice::swapNs(uint64_t bytes) const {
  const double ns = static_cast<double>(bytes) * (h2dNs_ + d2hNs_);
  return ns < static_cast<double>(kMostNs) ? 2 * latencyNs_ + static_cast<uint64_t>(ns) : kMostNs;
}

uint64_t SwapPrice::least(const std::vector<Bucket> &buckets, int64_t tokens, int64_t context) {
  uint64_t ns = kMostNs;
  for (const Bucket &bucket : buckets)
    if (bucket.tokens >= tokens && bucket.context >= context)
      ns = std::min(ns, bucket.ns);
  return ns;
}

uint64_t SwapPrice::recomputeNs(uint32_t placement, int64_t tokens, int64_t budget) const {
  const Placement &of = placements_[placement];
  if (budget < 1)
    return kMostNs;
  const uint64_t decodeNs = least(of.decode, 1, tokens);
  uint64_t sum = 0;
  for (int64_t done = 0; done < tokens; done += budget) {
    const int64_t end = std::min(tokens, done + budget);
    const uint64_t ns = least(of.mixed, end - done, end);
    if (ns == kMostNs)
      return kMostNs;
    sum += ns - std::min(ns, decodeNs);
  }
  return sum;
}

} // namespace headrace::serve
