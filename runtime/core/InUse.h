// SPDX-License-Identifier: Apache-2.0
//
// How much of the KV cache a launch may use, and what its resizable copies (plan::Step::resizable) copy of it. A size
// belongs to its launch: of two launches of one graph in flight each keeps its own.
//
//   blocks      | 4    5    6    7    8    9    10   11 |     what the plan lets it copy, in 64 shares
//   in use      | - - - - - - - - - -|                        blocks below 6.5, say
//   is copied   | = = = = = = = = = = =|                      the first shares that hold them, at least one
#pragma once

#include <cstdint>
#include <limits>

namespace headrace::core {

struct InUse {
  // KV blocks that may be in use, a layer, the scratch block 0 included: those below this number.
  int64_t kvBlocks = std::numeric_limits<int64_t>::max();
};

// A copy of a layer's KV blocks from `firstBlock` on, of which a launch may do a prefix.
struct SizedCopy {
  int64_t firstBlock = 0;
  uint64_t blockBytes = 0;  // above 0
  uint64_t bytes = 0;       // of all its blocks: the most that is copied; below 2^57
  bool wholeBlocks = false; // rounded up to blocks, else to kSizeAlign bytes
};

inline constexpr uint32_t kShares = 64;     // a copy's size is a number of 64ths of it
inline constexpr uint64_t kSizeAlign = 256; // and a multiple of this, but where it is all

// The least number of 64ths that hold the blocks in use, 1 to kShares: there is no copy of nothing.
uint32_t shareInUse(const SizedCopy &copy, const InUse &inUse);
// The bytes of so many 64ths: at most all, at least those of the blocks they were asked for.
uint64_t shareBytes(const SizedCopy &copy, uint32_t share);

inline uint64_t bytesInUse(const SizedCopy &copy, const InUse &inUse) {
  return shareBytes(copy, shareInUse(copy, inUse));
}

} // namespace headrace::core
