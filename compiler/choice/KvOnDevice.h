// SPDX-License-Identifier: Apache-2.0
//
// What KV takes of the device: the blocks that stay there, and the ranges (slots or places) that the tails of all
// caches go through. A cache has T blocks, of which R stay:
//
//   all stay     caches x T                            blocks
//   split        caches x R + ranges x (T - R)         each range is as large as a tail
//
//   6 caches of 33 blocks, 2 slots, room for 106 blocks:  R = (106 - 2 x 33) / (6 - 2) = 10,  60 + 2 x 23 = 106
//
// In bytes as it is laid out: what stays in one range, block by block, each range and each whole cache aligned.
#pragma once

#include <cstdint>
#include <optional>

namespace headrace::compiler {

struct KvOnDevice {
  int64_t caches = 0;      // one a layer and mini-batch
  int64_t blocks = 0;      // of a cache, the scratch block included
  uint64_t blockBytes = 0; // of a cache

  uint64_t wholeBytes() const;
  uint64_t splitBytes(int64_t resident, int64_t ranges) const;
  // The most blocks of each cache that stay within so many bytes, at least `least`; all where all do. None: not that
  // many.
  std::optional<int64_t> mostResident(uint64_t bytes, int64_t ranges, int64_t least) const;
  // The fewest bytes within which at least one block of each cache stays.
  uint64_t leastBytes(int64_t ranges) const;
};

// The ranges that tails of so many caches take turns in, where `slots` that follow each other are to be different
// (AssignSlots.h): 2 of 6 caches, 3 of 7.
int64_t rangesOfSlots(int64_t caches, int64_t slots);

} // namespace headrace::compiler
