// SPDX-License-Identifier: Apache-2.0
//
// How many of host memory's blocks hold K and V and how many hold activations (HybridServe, section 4.3.1, Algorithm
// 1). Which of the two a request's next block is, Eq. 11, is in runtime/job/ActRatio.h.
//
// Algorithm 1 fills what the weights leave of host memory, once, so that both lanes of a layer take equally long when
// every block is in use:
//
//   step 1   T_load_w against T_kv_gen(ACT on the device): ACT blocks, or KV blocks, that close the gap
//   step 2   the rest of the memory in the proportion that keeps it closed
//
// A block here is its tokens in all layers: S_weight and M_Host are of the whole model, so S_KV and S_ACT must be,
// while T_load_w, T_kv_gen and T_load_kv are of one layer. (The paper does not say so; with a layer's S_KV a model of n
// layers would be given n times the blocks that fit.)
//
// A batch with another number of blocks than fill the memory is split by bestSplit() (HybridSplit.h).
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/cost/HybridServe.h"

namespace headrace::cost {

// Bytes of all layers.
struct HostCapacity {
  int64_t bytes = 0;       // M_Host
  int64_t weightBytes = 0; // S_weight
  BlockBytes block;        // S_KV, S_ACT
};

// ---- Algorithm 1 as printed ----

// Line 13 to 26 in real numbers: nothing in them keeps a part from being negative, or the first step from taking more
// than there is (then the second gives some back). With intercepts, the lines 15, 17 and 26 count them again each.
struct PrintedAllocation {
  double actInit = 0, kvInit = 0;     // lines 10-18
  double actRemain = 0, kvRemain = 0; // lines 20-27
  int64_t actHost = 0, kvHost = 0;    // line 8, rounded down; below 0 where the sum is
};
// `actDevice` >= 0: ACT blocks on the device. kInvalidArgument for what allocateHybrid() refuses, and for slopes of
// kvGen or loadKv that are 0, which lines 15, 17 and 26 divide by.
absl::StatusOr<PrintedAllocation> allocatePrinted(const HybridTimes &times, int64_t actDevice,
                                                  const HostCapacity &host);

// ---- Algorithm 1, corrected ----

struct HybridAllocation {
  int64_t actHost = 0, kvHost = 0; // no further block fits, but for a smaller one beside all KV or all ACT
  LaneTimes lanes;                 // correctedLanes() with every block in use
  Binding binding = Binding::kNothing;
};
// Both steps at once: of the splits that fill the memory the one with the smallest |T_pcie - T_compute|, where T_pcie
// has T_load_act and T_compute has T_forward: where the two lines cross, in closed form. Where they do not, the end
// with the least of the longer lane: all KV where compute is longer, all ACT where the link is. All KV also where an
// ACT block takes no less of the link than a KV block (balance would then be had by making both lanes longer). Beside
// kBalanced and kBlocksTooCoarse:
//   kHostMemory   all of the memory holds one kind, and more memory with more of it would bring balance
//   kAllKv        compute is longer by the forward pass alone, and no number of KV blocks catches up
//   kAllAct       the link is longer, and no number of ACT blocks catches up
//   kActLoadsMore, kNothing
// kInvalidArgument: checkTimes(), a negative actDevice, block bytes below 1, weights of less than 0 bytes or more than
// host memory has, memory for more than 2^44 blocks.
absl::StatusOr<HybridAllocation> allocateHybrid(const HybridTimes &times, int64_t actDevice, const HostCapacity &host);

} // namespace headrace::cost
