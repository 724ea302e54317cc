// SPDX-License-Identifier: Apache-2.0
//
// Numbers that a kernel and its launch must agree on.
#pragma once

#include <cstdint>

#include "kernels/Kernels.h"

namespace headrace::kernels {

inline constexpr int kSampleThreads = 1024;    // a power of two, whole warps
inline constexpr int kAnyAttentionChunk = 128; // tokens whose scores attention_any keeps; also its block's threads
inline constexpr int64_t kAnyAttentionDim = 256;
inline constexpr int kPackedProductColumns = 16, kPackedProductWarps = 8; // of y that a block makes, with so many warps

// Tokens of consecutive keys, and what those with higher keys have.
struct SampleSpan {
  uint32_t low, high; // both are a token's
  uint32_t tokensAbove, tokens;
  uint64_t unitsAbove, units; // weight

  HEADRACE_HD bool has(uint32_t key) const { return key >= low && key <= high; }
};

// A block's shared memory of sampling.
struct SampleShared {
  static constexpr int kBins = 32 * 65, kListed = 5632; // bins: as many parts of 128 ids, too
  uint64_t scratch[3 * kSampleThreads / 32], found[2][3];
  SampleSpan spans[3];
  uint32_t low[kBins], high[kBins], count[kBins]; // weight, in units; tokens
  uint32_t keys[kListed];

  HEADRACE_HD uint64_t units(uint32_t bin) const { return uint64_t{high[bin]} << 32 | low[bin]; }
  HEADRACE_HD void setUnits(uint32_t bin, uint64_t units) {
    low[bin] = static_cast<uint32_t>(units), high[bin] = static_cast<uint32_t>(units >> 32);
  }
};
static_assert(sizeof(SampleShared) <= 48 * 1024); // what a block has without being asked

// The vectors of a row (heads of q, then k, then v) that rope_append has work with: q's are left alone where they are
// neither rotated nor normalised. rotate's are q's and k's. Blocks along y share them evenly.
struct RopePlanes {
  int64_t first, count;
  HEADRACE_HD int64_t perBlock(int64_t blocks) const { return (count + blocks - 1) / blocks; }
};
HEADRACE_HD inline RopePlanes ropePlanes(const RopeAppendArgs &args) {
  const int64_t first = args.inverseFrequencies != nullptr || args.headNorms != nullptr ? 0 : args.heads;
  return {first, args.heads + 2 * args.kvHeads - first};
}
HEADRACE_HD inline RopePlanes ropePlanes(const RotateArgs &args) { return {0, args.heads + args.kvHeads}; }

} // namespace headrace::kernels
