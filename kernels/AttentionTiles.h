// SPDX-License-Identifier: Apache-2.0
//
// Index arithmetic of the CUDA attention kernels, for both sides: where a token's row of the cache lies, how a context
// is split, which queries a block works on, how rows lie in shared memory. Tests run it on the host against plain
// loops.
#pragma once

#include <cstdint>

#include "kernels/CudaWorkspace.h"
#include "kernels/HostDevice.h"
#include "kernels/KvSegments.h"

namespace headrace::kernels {

// ---- the cache (AttentionArgs in Kernels.h), in units of 16 elements: head sizes of tensor cores are multiples of
// that

inline constexpr int64_t kCacheUnit = 16;
// Whether 32 bits count the units: 2^36 elements, 128 GiB of 16 bits between the first byte and the last.
HEADRACE_HD constexpr bool countsInUnits(const KvSegments &s) {
  return s.multipleOf(kCacheUnit) && s.end <= kCacheUnit << 32;
}

struct CacheUnits {
  uint32_t start, stride, tail, tailStride, split, act, actStride, firstAct; // as KvSegments, in units
  uint32_t kvHeads, blockTokens, rowUnits;                                   // rowUnits: of headDim elements

  HEADRACE_HD CacheUnits(const KvSegments &s, int64_t heads, int64_t tokens, int64_t headDim)
      : start(static_cast<uint32_t>(s.start / kCacheUnit)), stride(static_cast<uint32_t>(s.stride / kCacheUnit)),
        tail(static_cast<uint32_t>(s.tail / kCacheUnit)), tailStride(static_cast<uint32_t>(s.tailStride / kCacheUnit)),
        split(static_cast<uint32_t>(s.split)), act(static_cast<uint32_t>(s.act / kCacheUnit)),
        actStride(static_cast<uint32_t>(s.actStride / kCacheUnit)), firstAct(static_cast<uint32_t>(s.firstAct)),
        kvHeads(static_cast<uint32_t>(heads)), blockTokens(static_cast<uint32_t>(tokens)),
        rowUnits(static_cast<uint32_t>(headDim / kCacheUnit)) {}

  // Where the token's row of k begins; v's is valuesAfter() further.
  HEADRACE_HD uint32_t keyOf(const int32_t *blocks, uint32_t token, uint32_t kvHead) const {
    const uint32_t block = static_cast<uint32_t>(blocks[token / blockTokens]);
    const uint32_t begin = block >= firstAct ? act + (block - firstAct) * actStride
                           : block < split   ? start + block * stride
                                             : tail + (block - split) * tailStride;
    return begin + (kvHead * blockTokens + token % blockTokens) * rowUnits;
  }
  HEADRACE_HD uint32_t valuesAfter() const { return kvHeads * blockTokens * rowUnits; }
};

// ---- decode: splits of the context

struct TokenRange {
  int64_t begin = 0, end = 0;
};

// The tokens of split `split` of a query that attends to `reach` tokens; empty where the split has no work.
HEADRACE_HD inline TokenRange splitRange(int64_t split, int64_t reach) {
  const int64_t begin = split * CudaWorkspace::kSplitTokens, end = begin + CudaWorkspace::kSplitTokens;
  return {begin, end < reach ? end : reach};
}
// Query heads of one key head that one block takes: the rows of a tensor-core tile.
inline constexpr int64_t kTileHeads = 16;
HEADRACE_HD inline int64_t headTiles(int64_t group) { return (group + kTileHeads - 1) / kTileHeads; }

// Scratch of decode attention, in floats: sums [rows][heads][splits][headDim], then of each (row, head, split) the
// largest score and the sum of exponentials.
struct SplitScratch {
  int64_t rows, heads, splits, headDim;
  HEADRACE_HD int64_t index(int64_t row, int64_t head, int64_t split) const {
    return (row * heads + head) * splits + split;
  }
  HEADRACE_HD int64_t sums(int64_t row, int64_t head, int64_t split) const { return index(row, head, split) * headDim; }
  HEADRACE_HD int64_t totals(int64_t row, int64_t head, int64_t split) const {
    return rows * heads * splits * headDim + index(row, head, split) * 2;
  }
};

// ---- prefill and mixed iterations: tiles of packed queries

// Queries of one key head: query i of a sequence is row i / group, head i % group of the group. A sequence's tiles
// start at a number that needs no sum over the sequences before it, so some tiles are empty: sequence s, whose first
// query is q, starts at tile floor(q / tileQueries) + s. (It has room: floor((q + n) / t) - floor(q / t) + 1 is at
// least ceil(n / t).)
struct QueryTile {
  int32_t sequence = -1; // -1: nothing to do
  int32_t first = 0;     // of the sequence's queries
  int32_t count = 0;     // queries, at most tileQueries
};
HEADRACE_HD inline int64_t firstTile(int64_t sequence, int64_t row, int64_t group, int64_t tileQueries) {
  return row * group / tileQueries + sequence;
}
// Tiles that cover any iteration of at most this many rows and sequences.
HEADRACE_HD inline int64_t queryTiles(int64_t tokens, int64_t sequences, int64_t group, int64_t tileQueries) {
  return tokens * group / tileQueries + sequences;
}
HEADRACE_HD inline QueryTile queryTile(const int32_t *queryStart, int32_t sequences, int64_t group, int64_t tileQueries,
                                       int64_t tile) {
  QueryTile result;
  // The last sequence that starts at this tile or before it.
  int32_t low = 0, high = sequences; // firstTile(low) <= tile < firstTile(high)
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    if (firstTile(middle, queryStart[middle], group, tileQueries) <= tile)
      low = middle;
    else
      high = middle;
  }
  if (sequences <= 0)
    return result;
  const int64_t queries = int64_t{queryStart[low + 1] - queryStart[low]} * group;
  const int64_t first = (tile - firstTile(low, queryStart[low], group, tileQueries)) * tileQueries;
  if (first >= queries)
    return result;
  result.sequence = low;
  result.first = static_cast<int32_t>(first);
  result.count = static_cast<int32_t>(queries - first < tileQueries ? queries - first : tileQueries);
  return result;
}

// ---- shared memory: rows of headDim 16-bit elements

// Eight successive rows start in eight different 16-byte banks, so ldmatrix has no conflicts: for every headDim that
// is a multiple of 16, headDim * 2 + 16 is an odd multiple of 16.
HEADRACE_HD constexpr int64_t paddedRowBytes(int64_t headDim) { return headDim * 2 + 16; }

// Of packed caches 16 rows of k or of v come as they are, codes, then from 16 headDim bytes on their groups' words, and
// are unpacked to rows as above. Heads have the largest groups that divide them.
HEADRACE_HD constexpr int64_t packedRowsBytes(int64_t headDim) { return 16 * (headDim + 16); }
HEADRACE_HD constexpr int packedGroup(int64_t headDim) { return headDim % 64 == 0 ? 64 : 32; }

struct DecodeTiles {
  static constexpr int kWarps = 4, kStages = 2, kChunk = 16; // each warp streams chunks of 16 tokens of its own
  // k and v of every warp's stages; the warps' results lie there afterwards, which need less.
  static constexpr int64_t sharedBytes(int64_t headDim) {
    return int64_t{kWarps} * kStages * 2 * kChunk * paddedRowBytes(headDim);
  }
  // Packed: stages as they come, and one unpacked.
  static constexpr int64_t packedSharedBytes(int64_t headDim) {
    return int64_t{kWarps} * 2 * (kStages * packedRowsBytes(headDim) + kChunk * paddedRowBytes(headDim));
  }
  static constexpr int64_t mergeBytes(int64_t headDim) { return int64_t{kWarps} * 16 * (headDim + 2) * 4; }
};

struct PrefillTiles {
  static constexpr int kWarps = 4, kTokens = 64;
  static constexpr int queries(int rowTiles) { return kWarps * 16 * rowTiles; }
  static constexpr int64_t sharedBytes(int64_t headDim, int rowTiles) {
    return (queries(rowTiles) + 2 * kTokens) * paddedRowBytes(headDim);
  }
  // Packed: and a warp's 16 rows as they come.
  static constexpr int64_t packedSharedBytes(int64_t headDim, int rowTiles) {
    return sharedBytes(headDim, rowTiles) + kWarps * packedRowsBytes(headDim);
  }
};

} // namespace headrace::kernels
