// SPDX-License-Identifier: Apache-2.0
//
// The split of a given context into KV and ACT blocks, in host and device memory, with which a layer is fastest
// (HybridServe, sections 4.2.1 and 4.3, corrected): what a planner asks, where Algorithm 1 (HybridAllocation.h) asks
// how many blocks fill the host memory.
//
//   blocks = KV host + ACT host + ACT device + KV device
//   a layer takes max(T_pcie, T_compute), correctedLanes()
//
//              KV host                              ACT host                     ACT device          KV device
//   link       loadKv                               loadAct                      -                   -
//   compute    -                                    kvGen                        kvGen               -
//
// For a number of KV blocks on the device, the more ACT blocks the longer is T_compute and, while an ACT block takes
// less of the link, the shorter T_pcie: the best number is where they cross, by bisection. ACT blocks fill the device
// first (section 4.2.1). KV blocks are there only in a number that makes the layer faster, as where too little is
// loaded to hide the computing behind. While both lanes are equally long and loads go by bytes it does not matter
// which: a KV block on the device takes away its load, an ACT block its own and none of the computing, so as much a
// byte.
#pragma once

#include <cstdint>
#include <limits>

#include "absl/status/statusor.h"
#include "runtime/cost/HybridServe.h"

namespace headrace::cost {

// Bytes that blocks may take. All of the same extent: of one layer, or of all.
struct SplitLimits {
  int64_t hostBytes = 0, deviceBytes = 0;
  BlockBytes block;
  int64_t kvDeviceBytes = std::numeric_limits<int64_t>::max(); // that KV blocks may take of deviceBytes; 0: none
};

struct HybridSplit {
  HybridBlocks blocks; // total() is what was asked for
  LaneTimes lanes;     // correctedLanes() of them
  Binding binding = Binding::kNothing;
};

// The split of `blocks` (at least 0) with the smallest max(T_pcie, T_compute), within 1e-9 of it; of several the one
// with the fewest KV blocks on the device, then the fewest ACT blocks. Times are of the batch: overMiniBatches() where
// it runs as several. Binding, where the lanes differ by more than kBalancedWithin:
//   kAllKv            compute is longer and nothing is ACT
//   kHostMemory       one lane would become shorter if a block changed its kind, which does not fit
//   kAllAct           the link is longer and host memory holds nothing but ACT
//   kActLoadsMore, kOnlyWeights, kBlocksTooCoarse, kNothing
// kInvalidArgument: checkTimes(), fewer than 0 blocks, block bytes below 1, limits below 0, bytes beyond 2^62.
// kResourceExhausted: the blocks do not fit, with how many do.
absl::StatusOr<HybridSplit> bestSplit(const HybridTimes &times, int64_t blocks, const SplitLimits &limits);

} // namespace headrace::cost
