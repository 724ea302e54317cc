// SPDX-License-Identifier: Apache-2.0
//
// Index arithmetic of the CUDA attention kernels, for both sides: where a token's row of the cache lies, how a context
// is split, which queries a block works on, how rows lie in shared memory. Tests run it on the host against plain
// loops.
#pragma once

#include <cstdint>

#include "kernels/CudaWorkspace.h"
#include "kernels/HostDevice.h"

namespace headrace::kernels {

// ---- the cache (KvLayout in Kernels.h), in rows of headDim elements

// Row of k of the token; v's is valueRows() further. Fits 32 bits: 2^32 rows would be 512 GiB of one layer's cache.
HEADRACE_HD inline uint32_t keyRow(const int32_t *blocks, uint32_t token, uint32_t kvHead, uint32_t kvHeads,
                                   uint32_t blockTokens) {
  const uint32_t block = static_cast<uint32_t>(blocks[token / blockTokens]);
  return (block * 2 * kvHeads + kvHead) * blockTokens + token % blockTokens;
}
HEADRACE_HD inline uint32_t valueRows(uint32_t kvHeads, uint32_t blockTokens) { return kvHeads * blockTokens; }

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

struct DecodeTiles {
  static constexpr int kWarps = 4, kStages = 2, kChunk = 16; // each warp streams chunks of 16 tokens of its own
  // k and v of every warp's stages; the warps' results lie there afterwards, which need less.
  static constexpr int64_t sharedBytes(int64_t headDim) {
    return int64_t{kWarps} * kStages * 2 * kChunk * paddedRowBytes(headDim);
  }
  static constexpr int64_t mergeBytes(int64_t headDim) { return int64_t{kWarps} * 16 * (headDim + 2) * 4; }
  // Blocks of one (row, key head, tile of heads) count their arrivals in a word each.
  static constexpr int64_t kArrivals = 1 << 16;
};

struct PrefillTiles {
  static constexpr int kWarps = 4, kTokens = 64;
  static constexpr int queries(int rowTiles) { return kWarps * 16 * rowTiles; }
  static constexpr int64_t sharedBytes(int64_t headDim, int rowTiles) {
    return (queries(rowTiles) + 2 * kTokens) * paddedRowBytes(headDim);
  }
};

} // namespace headrace::kernels
