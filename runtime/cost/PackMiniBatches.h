// SPDX-License-Identifier: Apache-2.0
//
// Requests into mini-batches that fit the device's buffers and keep both lanes equally long (HybridServe, section
// 4.3.3).
//
//   requests     0: KV KV ACT    1: ACT    2: KV ACT    3: KV KV
//   slots        4 KV, 2 ACT
//   mini-batches { 0, 1 } { 2, 3 }
//
// The paper's greedy lets a request join only if F_b falls. Requests that keep the same ratio (which Eq. 11 makes them
// do) leave F_b where it is, but for what intercepts do, so that each would have a mini-batch of its own; against what
// the paper says it minimises, "both the number of mini-batches and the imbalance".
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/cost/HybridServe.h"

namespace headrace::cost {

// What one mini-batch may hold of a layer: the size of the device's buffers, in blocks.
struct MiniBatchSlots {
  int64_t kv = 0;  // #KV_max: KV blocks loaded from host memory
  int64_t act = 0; // #ACT_max: ACT blocks loaded from host memory
  // Blocks of K and V computed from ACT blocks, wherever those lie. The paper names no bound.
  int64_t generated = std::numeric_limits<int64_t>::max();
  BlockBytes block; // of one layer, for messages

  bool hold(const HybridBlocks &blocks) const {
    return blocks.kvHost <= kv && blocks.actHost <= act && blocks.act() <= generated;
  }
};

struct Packing {
  // Requests by their index, ascending; every request in exactly one. Mini-batches by their first request.
  std::vector<std::vector<size_t>> miniBatches;
  // Mini-batches run one after the other, each in max(T_pcie, T_compute) with its share of the weights' load.
  double layerNs = 0;
};

// Both: kInvalidArgument for checkTimes(), negative slots or blocks, more than 2^26 blocks of a kind in a request, more
// than 2^16 requests; kResourceExhausted for a request that is larger than the slots, with its bytes. Same input, same
// packing.

// The greedy as printed. A mini-batch starts with the first request that is left. A request joins, in order, if it fits
// and F_b of printedBalance() falls (by more than 1e-9 of it, which rounding explains); the scan repeats until none
// joins. F_b infinite (KV or ACT alone) falls to any finite one; NaN (neither) never falls.
absl::StatusOr<Packing> packPrinted(const HybridTimes &times, absl::Span<const HybridBlocks> requests,
                                    const MiniBatchSlots &slots);

// F_b may rise so far as a request joins.
inline constexpr double kJoinRise = 1.02;

// The greedy, corrected. F_b is of correctedBalance(), with a share of the weights' load as of the mini-batches that
// first-fit decreasing needs.
//   1. A mini-batch starts with the first request that is left. Of those that fit, the one with which F_b is lowest
//      joins, if F_b does not rise above kJoinRise x what it is.
//   2. One mini-batch fewer outweighs F_b: two that fit into one are merged, the one with the fewest requests first and
//      into the one with which F_b is lowest, until no two fit.
//   3. Where first-fit decreasing needs fewer, or as many and less time, its mini-batches are taken.
// So there are never more mini-batches than first-fit decreasing makes. O(n^2) for n requests in step 1.
absl::StatusOr<Packing> packMiniBatches(const HybridTimes &times, absl::Span<const HybridBlocks> requests,
                                        const MiniBatchSlots &slots);

} // namespace headrace::cost
