// SPDX-License-Identifier: Apache-2.0
//
// Op::Attention on CUDA for iterations in which sequences have several rows: tiles of packed queries (AttentionTiles.h)
// against the paged cache, 64 tokens at a time, causal by position. Sequences of one row are left to the blocks of the
// grid's further planes, which work as in a decode bucket (AttentionDecodeCuda.cuh); without such planes, to these.
//
// Block (tile, key head): four warps of 16 x kRowTiles queries each. The copy of a step's values runs under the product
// with its keys, the copy of the next step's keys under the softmax and the product with the values.
//
// What a query computes depends on its own q and on tokens 0 .. position: steps begin at multiples of 64, and a step
// that only other queries of the tile reach multiplies by one and adds zero. So its bits do not depend on the tile, the
// batch or kRowTiles. (Where a token after `position` in the same iteration has an infinite value, 0 x infinity makes
// a NaN, which the host's kernel avoids.)
#pragma once

#include "kernels/cuda/AttentionDecodeCuda.cuh"

namespace headrace::kernels {

template <Elem kElem, int kDim, int kRowTiles, typename Cache> struct AttentionPrefill {
  static constexpr int kWarps = PrefillTiles::kWarps, kThreads = kWarps * 32, kTokens = PrefillTiles::kTokens;
  static constexpr int kQueries = PrefillTiles::queries(kRowTiles), kScoreTiles = kTokens / 8;
  static constexpr bool kTableInShared = kRowTiles > 1 && kPointersInShared;
  static constexpr int64_t kRowBytes = paddedRowBytes(kDim);

  // What is seldom asked for lies behind each warp's first query, where rows in shared memory are padded: registers are
  // all taken.
  struct Notes {
    int32_t first, count; // the tile's, of its sequence's queries
    int32_t firstRow;     // of the sequence
    int32_t leastReach;   // what the warp's first query attends to: the least of its queries
  };
  static_assert(sizeof(Notes) <= kRowBytes - kDim * 2);

  const AttentionArgs &args;
  uint32_t group, kvHead; // query heads of a key head; the block's key head

  HEADRACE_DEVICE explicit AttentionPrefill(const AttentionArgs &a) : args(a) {}

  // Row and query head of query i of the tile.
  HEADRACE_DEVICE int32_t rowOf(const Notes &tile, int i) const {
    return tile.firstRow + static_cast<int32_t>(static_cast<uint32_t>(tile.first + i) / group);
  }
  HEADRACE_DEVICE uint32_t headOf(const Notes &tile, int i) const {
    return blockIdx.y * group + static_cast<uint32_t>(tile.first + i) % group;
  }

  HEADRACE_DEVICE void run() {
    const IterationMeta &meta = *args.meta;
    const int32_t *queryStart = meta.array<int32_t>(meta.queryStart), *positions = meta.array<int32_t>(meta.positions);
    group = static_cast<uint32_t>(args.heads / args.kvHeads);
    kvHead = blockIdx.y;
    // Later tiles of a sequence have more tokens: they start first.
    const QueryTile own = queryTile(queryStart, meta.numSequences, group, kQueries, gridDim.x - 1 - blockIdx.x);
    if (own.sequence < 0)
      return;
    const Notes tile{own.first, own.count, queryStart[own.sequence], 0};
    if (gridDim.z > 1 && queryStart[own.sequence + 1] == tile.firstRow + 1)
      return;
    const int32_t end = positions[rowOf(tile, tile.count - 1)] + 1; // tokens that the tile's last query attends to
    const Cache cache = Cache::of(args, kvHead);
    const int32_t *table = meta.array<int32_t>(meta.blockTable) + int64_t{own.sequence} * meta.tableStride;
    const uint32_t toValues = cache.units.valuesAfter();
    unsigned char *queries = sharedMemory(), *keys = queries + kQueries * kRowBytes,
                  *values = keys + kTokens * kRowBytes;
    unsigned char *warpKeys = keys + warpIndex() * 16 * kRowBytes, *warpValues = values + warpIndex() * 16 * kRowBytes;
    // Where rows of a packed cache come, keys and values in turn, before the warp unpacks them.
    unsigned char *packed = values + kTokens * kRowBytes + warpIndex() * packedRowsBytes(kDim);
    const auto arrived = [&](unsigned char *rows) {
      waitCopies<0>();
      if constexpr (Cache::kPacked) {
        syncWarp();
        cache.template unpack<kElem>(packed, rows);
      }
    };

    const int firstQuery = warpIndex() * 16 * kRowTiles; // of the warp, in the tile
    const bool active = firstQuery < tile.count;
    Notes &notes = *reinterpret_cast<Notes *>(queries + firstQuery * kRowBytes + kDim * 2);
    // The sequence's row of the block table, behind the next query.
    const int32_t *&blocks = *reinterpret_cast<const int32_t **>(queries + (firstQuery + 1) * kRowBytes + kDim * 2);
    if (kTableInShared && laneIndex() == 0)
      blocks = table;
    if (active && laneIndex() == 0) {
      notes = tile;
      notes.leastReach = positions[rowOf(tile, firstQuery)] + 1; // positions rise along a tile
    }

    copyQueries(tile, queries);
    uint32_t cacheKey = cache.keyOf(table, warpIndex() * 16, end);
    cache.copy(Cache::kPacked ? packed : warpKeys, cacheKey, 0, warpIndex() * 16, end);
    commitCopies();

    QueryRows<kDim> rows[kRowTiles];
    HEADRACE_LOOP
    for (int m = 0; m < kRowTiles; ++m)
      rows[m].clear();
    const float scaleLog2 = args.scale * kLog2E;
    for (int32_t start = 0; start < end; start += kTokens) {
      arrived(warpKeys);
      syncBlock(); // this step's keys are here; all warps are done with the last step's values
      const int32_t first = start + warpIndex() * 16, next = first + kTokens;
      cache.copy(Cache::kPacked ? packed : warpValues, cacheKey, toValues, first, end);
      commitCopies();
      const bool more = start + kTokens < end;
      if (more)
        cacheKey = cache.keyOf(kTableInShared ? blocks : table, next, end);

      float scores[kRowTiles][kScoreTiles][4];
      if (active)
        multiplyKeys(scores, queries + firstQuery * kRowBytes, keys);
      arrived(warpValues);
      syncBlock(); // the values are here; all warps are done with the keys
      if (more)
        cache.copy(Cache::kPacked ? packed : warpKeys, cacheKey, 0, next, end);
      commitCopies();
      if (!active)
        continue;
      HEADRACE_LOOP
      for (int m = 0; m < kRowTiles; ++m) {
        if (start + kTokens > notes.leastReach) { // few steps: what the rows attend to is not kept in registers
          int32_t reach[2];
          HEADRACE_LOOP
          for (int r = 0; r < 2; ++r) {
            const int i = firstQuery + m * 16 + laneIndex() / 4 + r * 8;
            const int32_t *at = args.meta->array<int32_t>(args.meta->positions);
            reach[r] = i < notes.count ? at[rowOf(notes, i)] + 1 - start : 0; // no token for rows of no query
          }
          maskScores<kScoreTiles>(scores[m], reach);
        }
        softmaxStep<kScoreTiles>(scores[m], rows[m], scaleLog2);
      }
      multiplyValues(rows, scores, values);
    }
    waitCopies<0>();
    if (active)
      store(notes, rows, firstQuery);
  }

private:
  // q of the tile's queries, zeroes in the other rows.
  HEADRACE_DEVICE void copyQueries(const Notes &tile, unsigned char *queries) const {
    constexpr int kVectors = kDim / 8;
    const int64_t rowLength = (args.heads + 2 * args.kvHeads) * kDim;
    HEADRACE_LOOP
    for (int n = 0; n < kQueries * kVectors / kThreads; ++n) {
      const int v = n * kThreads + static_cast<int>(threadIdx.x), i = v / kVectors, column = v % kVectors;
      const int valid = i < tile.count ? i : 0;
      const uint16_t *q =
          static_cast<const uint16_t *>(args.qkv) + (rowOf(tile, valid) * rowLength + headOf(tile, valid) * kDim);
      copyAsync16(queries + i * kRowBytes + column * 16, q + column * 8, i < tile.count);
    }
  }

  HEADRACE_DEVICE static void multiplyKeys(float (&scores)[kRowTiles][kScoreTiles][4], const unsigned char *queries,
                                           const unsigned char *keys) {
    HEADRACE_LOOP
    for (int m = 0; m < kRowTiles; ++m) {
      HEADRACE_LOOP
      for (int j = 0; j < kScoreTiles; ++j)
        scores[m][j][0] = scores[m][j][1] = scores[m][j][2] = scores[m][j][3] = 0.0f;
    }
    HEADRACE_LOOP
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t a[kRowTiles][4];
      HEADRACE_LOOP
      for (int m = 0; m < kRowTiles; ++m)
        loadQueries<kDim>(a[m], queries + m * 16 * kRowBytes, k);
      HEADRACE_LOOP
      for (int g = 0; g < kTokens / 16; ++g) {
        uint32_t b[4];
        loadKeys<kDim>(b, keys + g * 16 * kRowBytes, k);
        HEADRACE_LOOP
        for (int m = 0; m < kRowTiles; ++m) {
          multiplyTile<kElem>(scores[m][2 * g], a[m], b[0], b[1]);
          multiplyTile<kElem>(scores[m][2 * g + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

  HEADRACE_DEVICE static void multiplyValues(QueryRows<kDim> (&rows)[kRowTiles],
                                             const float (&scores)[kRowTiles][kScoreTiles][4],
                                             const unsigned char *values) {
    HEADRACE_LOOP
    for (int g = 0; g < kTokens / 16; ++g) {
      uint32_t p[kRowTiles][4];
      HEADRACE_LOOP
      for (int m = 0; m < kRowTiles; ++m)
        packScores<kElem, kScoreTiles>(p[m], scores[m], g);
      HEADRACE_LOOP
      for (int d = 0; d < kDim / 16; ++d) {
        uint32_t b[4];
        loadValues<kDim>(b, values + g * 16 * kRowBytes, d);
        HEADRACE_LOOP
        for (int m = 0; m < kRowTiles; ++m) {
          multiplyTile<kElem>(rows[m].output[2 * d], p[m], b[0], b[1]);
          multiplyTile<kElem>(rows[m].output[2 * d + 1], p[m], b[2], b[3]);
        }
      }
    }
  }

  HEADRACE_DEVICE void store(const Notes &tile, QueryRows<kDim> (&rows)[kRowTiles], int firstQuery) const {
    HEADRACE_LOOP
    for (int m = 0; m < kRowTiles; ++m) {
      rows[m].joinTotals();
      HEADRACE_LOOP
      for (int r = 0; r < 2; ++r) {
        const int i = firstQuery + m * 16 + laneIndex() / 4 + r * 8;
        if (i >= tile.count)
          continue;
        uint32_t *out = reinterpret_cast<uint32_t *>(static_cast<uint16_t *>(args.out) +
                                                     (rowOf(tile, i) * args.heads + headOf(tile, i)) * kDim) +
                        laneIndex() % 4;
        HEADRACE_LOOP
        for (int j = 0; j < QueryRows<kDim>::kColumns; ++j)
          out[j * 4] = packPair<kElem>(rows[m].output[j][2 * r] / rows[m].total[r],
                                       rows[m].output[j][2 * r + 1] / rows[m].total[r]);
      }
    }
  }
};

template <Elem kElem, int kDim, int kRowTiles, typename Cache = CacheRows<kDim>>
__global__ void __launch_bounds__(PrefillTiles::kWarps * 32, kRowTiles == 1 && !(Cache::kPacked && kDim == 128) ? 3 : 2)
    attentionPrefillKernel(const AttentionArgs args) {
  if (blockIdx.z > 0)
    AttentionDecode<kElem, kDim, MixedBlock, Cache>(args, {args}).run();
  else
    AttentionPrefill<kElem, kDim, kRowTiles, Cache>(args).run();
}

} // namespace headrace::kernels
