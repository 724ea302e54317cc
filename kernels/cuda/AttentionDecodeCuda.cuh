// SPDX-License-Identifier: Apache-2.0
//
// Op::Attention on CUDA for rows of sequences that have no other: split along the context at multiples of kSplitTokens.
// All rows of a decode bucket; of a mixed iteration those that decode, by blocks of the same launch as its prompts'.
//
// Block (split, tile of query heads, row) reads k and v of its key head and its split once, for up to 16 query heads.
// Its four warps stream chunks of 16 tokens each through buffers of their own (chunk c belongs to warp c % 4), and join
// their results in order of warps. A row of one split is then finished. Of several splits, each leaves its sums in the
// workspace; the last block to arrive, by the plan's own counters, joins them in order of splits. All of these orders
// depend on the row's own position only: a row's bits do not depend on the batch, the bucket or which block came last.
//
// Of a packed cache chunks come packed, and each warp unpacks the one in hand to rows of the activation type.
#pragma once

#include "kernels/cuda/AttentionWarpCuda.cuh"

namespace headrace::kernels {

// What a block of a decode bucket works on: (split, key head and tile of its heads, row).
struct DecodeBlock {
  HEADRACE_DEVICE static int32_t row() { return static_cast<int32_t>(blockIdx.z); }
  HEADRACE_DEVICE static bool works(const IterationMeta &meta) { return row() < meta.numTokens; }
  HEADRACE_DEVICE static uint32_t split() { return blockIdx.x; }
  HEADRACE_DEVICE static uint32_t heads() { return blockIdx.y; }
  // Where its partial results and its arrivals are kept: index of so many.
  HEADRACE_DEVICE static uint32_t index() { return blockIdx.z; }
  HEADRACE_DEVICE static uint32_t indices(const IterationMeta &) { return gridDim.z; }
};

// Of a mixed iteration: the planes of the grid behind the prompts', taken as a list of (split, tile of heads,
// sequence), sequences first; the key head is y. A block whose sequence has several rows, or whose split begins behind
// its context, has no work.
struct MixedBlock {
  const AttentionArgs &args; // all else is found anew when it is asked for: registers are all taken

  HEADRACE_DEVICE static uint32_t number() { return (blockIdx.z - 1) * gridDim.x + blockIdx.x; }
  HEADRACE_DEVICE uint32_t sequences() const { return static_cast<uint32_t>(args.meta->numSequences); }
  HEADRACE_DEVICE uint32_t tiles() const { return static_cast<uint32_t>(headTiles(args.heads / args.kvHeads)); }
  HEADRACE_DEVICE const int32_t *starts() const { return args.meta->array<int32_t>(args.meta->queryStart); }

  HEADRACE_DEVICE bool works(const IterationMeta &) const {
    return sequences() > 0 && starts()[index() + 1] == starts()[index()] + 1;
  }
  HEADRACE_DEVICE int32_t row() const { return starts()[index()]; }
  HEADRACE_DEVICE uint32_t split() const { return number() / sequences() / tiles(); }
  HEADRACE_DEVICE uint32_t heads() const { return blockIdx.y * tiles() + number() / sequences() % tiles(); }
  HEADRACE_DEVICE uint32_t index() const { return number() % sequences(); }
  HEADRACE_DEVICE uint32_t indices(const IterationMeta &) const { return sequences(); }
};

template <Elem kElem, int kDim, typename Block, typename Cache = CacheRows<kDim>> struct AttentionDecode {
  static constexpr int kWarps = DecodeTiles::kWarps, kChunk = DecodeTiles::kChunk;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int64_t kRowBytes = paddedRowBytes(kDim);
  // Of k or of v of a chunk, as it comes.
  static constexpr int64_t kStageBytes = Cache::kPacked ? packedRowsBytes(kDim) : kChunk * kRowBytes;
  static constexpr int64_t kWarpBytes =
      2 * (DecodeTiles::kStages * kStageBytes + (Cache::kPacked ? kChunk * kRowBytes : 0));
  static_assert(kWarps * kWarpBytes ==
                (Cache::kPacked ? DecodeTiles::packedSharedBytes(kDim) : DecodeTiles::sharedBytes(kDim)));
  static_assert(DecodeTiles::mergeBytes(kDim) <= kWarps * kWarpBytes);
  using Rows = QueryRows<kDim>;

  const AttentionArgs &args;
  const Block block;
  const float scaleLog2;
  int32_t row, firstHead; // firstHead: of all query heads
  int heads;              // of this block

  HEADRACE_DEVICE AttentionDecode(const AttentionArgs &a, const Block &b)
      : args(a), block(b), scaleLog2(a.scale * kLog2E) {}

  HEADRACE_DEVICE void run() {
    const IterationMeta &meta = *args.meta;
    if (!block.works(meta))
      return;
    row = block.row();
    const int64_t reach = int64_t{meta.array<int32_t>(meta.positions)[row]} + 1;
    const TokenRange range = splitRange(block.split(), reach);
    if (range.begin >= range.end)
      return;
    const int64_t group = args.heads / args.kvHeads, tiles = headTiles(group);
    const int64_t kvHead = block.heads() / tiles, firstOfGroup = block.heads() % tiles * kTileHeads;
    firstHead = static_cast<int32_t>(kvHead * group + firstOfGroup);
    heads = static_cast<int>(group - firstOfGroup < kTileHeads ? group - firstOfGroup : kTileHeads);

    const int64_t sequence = meta.array<int32_t>(meta.tokenSequence)[row];
    const Cache cache = Cache::of(args, static_cast<uint32_t>(kvHead));
    Rows rows;
    stream(cache, meta.array<int32_t>(meta.blockTable) + sequence * meta.tableStride, range, rows);
    joinWarps(rows);
    const int64_t splits = CudaWorkspace::splits(reach);
    float *results = reinterpret_cast<float *>(sharedMemory());
    for (int i = static_cast<int>(threadIdx.x); i < heads * kDim; i += kThreads) {
      float total;
      const float sum = joined(results, i / kDim, i % kDim, &total);
      if (splits == 1)
        storeResult(i / kDim, i % kDim, sum / total);
      else
        storePartial(results, i / kDim, i % kDim, sum, total);
    }
    if (splits > 1)
      joinSplits(splits);
  }

private:
  // ---- a warp and its chunks

  HEADRACE_DEVICE void stream(const Cache &cache, const int32_t *blocks, const TokenRange &range, Rows &rows) const {
    uint32_t query[kDim / 16][4];
    loadQuery(query);
    rows.clear();
    unsigned char *stages = sharedMemory() + warpIndex() * kWarpBytes;
    constexpr int32_t kStep = kWarps * kChunk;
    const int32_t end = static_cast<int32_t>(range.end);
    const uint32_t toValues = cache.units.valuesAfter();
    auto load = [&](int32_t first, uint32_t cacheKey, int stage) {
      unsigned char *to = stages + stage * (2 * kStageBytes);
      cache.copy(to, cacheKey, 0, first, end);
      cache.copy(to + kStageBytes, cacheKey, toValues, first, end);
    };
    int32_t first = static_cast<int32_t>(range.begin) + warpIndex() * kChunk;
    if (first < end)
      load(first, cache.keyOf(blocks, first, end), 0);
    commitCopies();
    uint32_t cacheKey =
        cache.keyOf(blocks, first + kStep, end); // of the next chunk: read from the block table a chunk ahead
    for (int stage = 0; first < end; first += kStep, stage ^= 1) {
      if (first + kStep < end)
        load(first + kStep, cacheKey, stage ^ 1);
      commitCopies();
      cacheKey = cache.keyOf(blocks, first + 2 * kStep, end);
      waitCopies<1>(); // this chunk's; the next one's may be under way
      syncWarp();
      const unsigned char *keys = stages + stage * (2 * kStageBytes);
      if constexpr (Cache::kPacked) {
        unsigned char *unpacked = stages + DecodeTiles::kStages * 2 * kStageBytes;
        cache.template unpack<kElem>(keys, unpacked);
        cache.template unpack<kElem>(keys + kStageBytes, unpacked + kChunk * kRowBytes);
        syncWarp();
        keys = unpacked;
      }
      attend(query, keys, end - first, rows);
      syncWarp(); // all lanes are done with this stage before the next copies into it
    }
    waitCopies<0>();
    rows.joinTotals();
  }

  // The left operand, query heads in its rows; zero in rows of no head.
  HEADRACE_DEVICE void loadQuery(uint32_t (&query)[kDim / 16][4]) const {
    const int64_t rowLength = (args.heads + 2 * args.kvHeads) * kDim;
    const uint32_t *q = reinterpret_cast<const uint32_t *>(static_cast<const uint16_t *>(args.qkv) + row * rowLength +
                                                           firstHead * kDim);
    const int head = laneIndex() / 4, pair = laneIndex() % 4;
    HEADRACE_LOOP
    for (int k = 0; k < kDim / 16; ++k) {
      HEADRACE_LOOP
      for (int i = 0; i < 4; ++i) { // rows head, head + 8; then the same 8 dimensions further
        const int h = head + i % 2 * 8;
        query[k][i] = h < heads ? q[h * (kDim / 2) + k * 8 + i / 2 * 4 + pair] : 0u;
      }
    }
  }

  HEADRACE_DEVICE void attend(const uint32_t (&query)[kDim / 16][4], const unsigned char *keys, int32_t tokens,
                              Rows &rows) const {
    float scores[2][4] = {};
    HEADRACE_LOOP
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t b[4];
      loadKeys<kDim>(b, keys, k);
      multiplyTile<kElem>(scores[0], query[k], b[0], b[1]);
      multiplyTile<kElem>(scores[1], query[k], b[2], b[3]);
    }
    if (tokens < kChunk)
      maskScores<2>(scores, {tokens, tokens});
    softmaxStep<2>(scores, rows, scaleLog2);
    uint32_t p[4];
    packScores<kElem, 2>(p, scores, 0);
    const unsigned char *values = keys + kChunk * kRowBytes;
    HEADRACE_LOOP
    for (int d = 0; d < kDim / 16; ++d) {
      uint32_t b[4];
      loadValues<kDim>(b, values, d);
      multiplyTile<kElem>(rows.output[2 * d], p, b[0], b[1]);
      multiplyTile<kElem>(rows.output[2 * d + 1], p, b[2], b[3]);
    }
  }

  // ---- the warps' results, in shared memory: outputs [warp][16][kDim], largest [warp][16], totals [warp][16]

  static constexpr int kLargest = kWarps * 16 * kDim, kTotals = kLargest + kWarps * 16;

  HEADRACE_DEVICE void joinWarps(const Rows &rows) const {
    float *results = reinterpret_cast<float *>(sharedMemory());
    syncBlock(); // every warp has read its last chunk
    const int head = laneIndex() / 4, column = laneIndex() % 4 * 2;
    HEADRACE_LOOP
    for (int r = 0; r < 2; ++r) {
      const int at = warpIndex() * 16 + head + r * 8;
      HEADRACE_LOOP
      for (int j = 0; j < Rows::kColumns; ++j) {
        results[at * kDim + j * 8 + column] = rows.output[j][2 * r];
        results[at * kDim + j * 8 + column + 1] = rows.output[j][2 * r + 1];
      }
      if (column == 0) {
        results[kLargest + at] = rows.largest[r];
        results[kTotals + at] = rows.total[r];
      }
    }
    syncBlock();
  }

  HEADRACE_DEVICE static float largestOf(const float *results, int head) {
    float largest = results[kLargest + head];
    HEADRACE_LOOP
    for (int w = 1; w < kWarps; ++w)
      largest = fmaxf(largest, results[kLargest + w * 16 + head]);
    return largest;
  }

  // Sum of the warps' outputs and totals, each brought to the largest score of all. A warp without a chunk has minus
  // infinity: its factor is zero.
  HEADRACE_DEVICE float joined(const float *results, int head, int d, float *total) const {
    const float largest = largestOf(results, head);
    float sum = 0.0f, exponentials = 0.0f;
    HEADRACE_LOOP
    for (int w = 0; w < kWarps; ++w) {
      const int at = w * 16 + head;
      const float factor = exp2Fast((results[kLargest + at] - largest) * scaleLog2);
      sum += factor * results[at * kDim + d];
      exponentials += factor * results[kTotals + at];
    }
    *total = exponentials;
    return sum;
  }

  HEADRACE_DEVICE void storeResult(int head, int d, float value) const {
    storeOne<kElem>(args.out, (row * args.heads + firstHead + head) * kDim + d, value);
  }

  // ---- several splits

  HEADRACE_DEVICE SplitScratch scratch() const {
    return {block.indices(*args.meta), args.heads, CudaWorkspace::splits(args.maxContext), kDim};
  }

  HEADRACE_DEVICE void storePartial(const float *results, int head, int d, float sum, float total) const {
    float *workspace = static_cast<float *>(args.workspace);
    const SplitScratch at = scratch();
    workspace[at.sums(block.index(), firstHead + head, block.split()) + d] = sum;
    if (d == 0) {
      float *totals = workspace + at.totals(block.index(), firstHead + head, block.split());
      totals[0] = largestOf(results, head);
      totals[1] = total;
    }
  }

  HEADRACE_DEVICE void joinSplits(int64_t splits) const {
    uint32_t *last = reinterpret_cast<uint32_t *>(sharedMemory());
    float *largest = reinterpret_cast<float *>(sharedMemory()) + 32, *totals = largest + 16;
    fenceDevice(); // this thread's sums are visible before the block counts as arrived
    syncBlock();
    if (threadIdx.x == 0) {
      const auto blocks = static_cast<uint32_t>(args.kvHeads * headTiles(args.heads / args.kvHeads)); // of a row
      const uint32_t counter = block.index() * blocks + block.heads();
      *last = atomicCountTo(args.arrivals + counter, static_cast<uint32_t>(splits - 1)) == splits - 1 ? 1u : 0u;
      fenceDevice();
    }
    syncBlock();
    if (*last == 0)
      return;
    fenceDevice();
    const float *workspace = static_cast<const float *>(args.workspace);
    const SplitScratch at = scratch();
    for (int h = warpIndex(); h < heads; h += kWarps) { // a warp a head; sums over lanes in a fixed tree
      const float *parts = workspace + at.totals(block.index(), firstHead + h, 0);
      float most = -__builtin_inff(), sum = 0.0f;
      for (int64_t i = laneIndex(); i < splits; i += 32)
        most = fmaxf(most, loadShared(parts + 2 * i));
      for (int mask = 16; mask > 0; mask /= 2)
        most = fmaxf(most, shuffleXor(most, mask));
      for (int64_t i = laneIndex(); i < splits; i += 32)
        sum += exp2Fast((loadShared(parts + 2 * i) - most) * scaleLog2) * loadShared(parts + 2 * i + 1);
      for (int mask = 16; mask > 0; mask /= 2)
        sum += shuffleXor(sum, mask);
      if (laneIndex() == 0)
        largest[h] = most, totals[h] = sum;
    }
    syncBlock();
    for (int i = static_cast<int>(threadIdx.x); i < heads * (kDim / 4); i += kThreads) {
      const int h = i / (kDim / 4), d = i % (kDim / 4) * 4;
      const float *parts = workspace + at.totals(block.index(), firstHead + h, 0);
      const float4 *sums = reinterpret_cast<const float4 *>(workspace + at.sums(block.index(), firstHead + h, 0) + d);
      float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
      HEADRACE_LOOP_BY(4)
      for (int64_t s = 0; s < splits; ++s) {
        const float factor = exp2Fast((loadShared(parts + 2 * s) - largest[h]) * scaleLog2);
        const float4 v = loadShared(sums + s * (kDim / 4));
        sum.x += factor * v.x, sum.y += factor * v.y, sum.z += factor * v.z, sum.w += factor * v.w;
      }
      const float values[4] = {sum.x, sum.y, sum.z, sum.w};
      HEADRACE_LOOP
      for (int j = 0; j < 4; ++j)
        storeResult(h, d + j, values[j] / totals[h]);
    }
  }
};

template <Elem kElem, int kDim, typename Cache = CacheRows<kDim>>
__global__ void __launch_bounds__(DecodeTiles::kWarps * 32, kDim == 64 ? 4 : 3)
    attentionDecodeKernel(const AttentionArgs args) {
  AttentionDecode<kElem, kDim, DecodeBlock, Cache>(args, {}).run();
}

} // namespace headrace::kernels
