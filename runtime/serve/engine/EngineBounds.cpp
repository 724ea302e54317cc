// SPDX-License-Identifier: Apache-2.0
#include "runtime/serve/engine/EngineBounds.h"

#include <algorithm>

#include "runtime/plan/value/PlacementTable.h"

namespace headrace::serve {

int64_t ofOneMiniBatch(const plan::Plan &plan, int64_t seqs) {
  return (seqs + plan.miniBatches - 1) / plan.miniBatches;
}

std::vector<int64_t> mixedBuckets(const plan::Plan &plan, int64_t sequences) {
  std::vector<int64_t> tokens(plan.placements.size(), 0);
  for (const plan::Variant &variant : plan.variants)
    if (!plan::bringsOneRowEach(plan, variant) && variant.sequences >= sequences)
      tokens[variant.placement] = std::max(tokens[variant.placement], variant.newTokens);
  return tokens;
}

EngineBounds engineBounds(const plan::Plan &plan) {
  EngineBounds bounds;
  for (const plan::Variant &variant : plan.variants)
    bounds.maxNumSeqs = std::max(bounds.maxNumSeqs, variant.sequences);
  bounds.maxNumSeqs = std::min(bounds.maxNumSeqs, plan.mostSequences());
  for (const int64_t tokens : mixedBuckets(plan, bounds.maxNumSeqs))
    bounds.maxNumBatchedTokens = std::max(bounds.maxNumBatchedTokens, tokens);
  bounds.maxNumSeqs *= plan.miniBatches;
  return bounds;
}

size_t microBatchesOf(const plan::Plan &plan, size_t stages, int64_t maxNumSeqs) {
  const int64_t most = engineBounds(plan).maxNumSeqs, seqs = maxNumSeqs > 0 ? std::min(maxNumSeqs, most) : most;
  return std::max<size_t>(1, std::min(stages, static_cast<size_t>(ofOneMiniBatch(plan, seqs))));
}

int64_t seatsOfMicroBatch(int64_t seats, size_t microBatches, size_t which) {
  const auto split = static_cast<int64_t>(microBatches);
  return seats / split + (static_cast<int64_t>(which) < seats % split ? 1 : 0);
}

} // namespace headrace::serve
