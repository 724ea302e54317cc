// SPDX-License-Identifier: Apache-2.0
//
// Whether a sequence that loses its blocks is better swapped or computed anew, by the plan's own numbers:
//
//   swapped    its bytes over the link, there and back
//   recomputed what prefilling its tokens adds to iterations that decode anyway: bucket with prompts - bucket without
//
// An iteration that waits for weights has room for many a token, so recomputing is cheap where much is offloaded.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::serve {

class SwapPrice {
public:
  explicit SwapPrice(const plan::Plan &plan);

  // `bytes` in each direction.
  uint64_t swapNs(uint64_t bytes) const;
  // Of so many tokens in a placement, in iterations of at most `budget` new tokens; kMostNs where it has no iterations
  // for prompts.
  uint64_t recomputeNs(uint32_t placement, int64_t tokens, int64_t budget) const;
  // Allocates nothing.
  bool pays(uint32_t placement, int64_t tokens, int64_t budget, uint64_t bytes) const {
    return swapNs(bytes) < recomputeNs(placement, tokens, budget);
  }

  static constexpr uint64_t kMostNs = uint64_t{1} << 62;

private:
  struct Bucket {
    int64_t tokens = 0, context = 0;
    uint64_t ns = 0;
  };
  struct Placement {
    std::vector<Bucket> decode, mixed;
  };
  // The least of those that hold so much; kMostNs if none does.
  static uint64_t least(const std::vector<Bucket> &buckets, int64_t tokens, int64_t context);

  std::vector<Placement> placements_;
  double h2dNs_ = 0, d2hNs_ = 0; // of a byte
  uint64_t latencyNs_ = 0;
};

} // namespace headrace::serve
