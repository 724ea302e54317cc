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

// The vectors of a row (heads of q, then k, then v) that rope_append has work with: q's are left alone where they are
// neither rotated nor normalised. Blocks along y share them evenly.
struct RopePlanes {
  int64_t first, count;
  HEADRACE_HD int64_t perBlock(int64_t blocks) const { return (count + blocks - 1) / blocks; }
};
HEADRACE_HD inline RopePlanes ropePlanes(const RopeAppendArgs &args) {
  const int64_t first = args.inverseFrequencies != nullptr || args.headNorms != nullptr ? 0 : args.heads;
  return {first, args.heads + 2 * args.kvHeads - first};
}

} // namespace headrace::kernels
