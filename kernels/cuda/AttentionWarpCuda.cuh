// SPDX-License-Identifier: Apache-2.0
//
// What a warp does in the tensor-core attention kernels: 16 queries against tokens that lie in shared memory, by the
// online softmax (Milakov and Gimelshein 2018, Dao et al. 2022).
//
// Fragments (PTX ISA, mma.m16n8k16): a lane holds of a 16 x 8 result rows lane / 4 and lane / 4 + 8, columns
// lane % 4 * 2 and the next. Scores in that form, rounded and packed, are the left operand of the product with v.
#pragma once

#include "kernels/AttentionTiles.h"
#include "kernels/cuda/CodesCuda.cuh"

namespace headrace::kernels {

inline constexpr float kLog2E = 1.44269504088896341f;

// A lane's part of 16 queries' state.
template <int kDim> struct QueryRows {
  static constexpr int kColumns = kDim / 8; // tiles of 8 dimensions
  float output[kColumns][4];
  float largest[2]; // of the scores so far, not yet scaled; the same on the four lanes of a row
  float total[2];   // this lane's share of the sum of exponentials

  HEADRACE_DEVICE void clear() {
    HEADRACE_LOOP
    for (int i = 0; i < kColumns; ++i)
      output[i][0] = output[i][1] = output[i][2] = output[i][3] = 0.0f;
    largest[0] = largest[1] = -__builtin_inff();
    total[0] = total[1] = 0.0f;
  }
  HEADRACE_DEVICE void joinTotals() {
    HEADRACE_LOOP
    for (int r = 0; r < 2; ++r) {
      total[r] += shuffleXor(total[r], 1);
      total[r] += shuffleXor(total[r], 2);
    }
  }
};

// The left operand's 16 x 16 tile from rows in shared memory: queries [0, 16) of `rows`, dimensions [16 k, 16 k + 16).
template <int kDim> HEADRACE_DEVICE void loadQueries(uint32_t (&a)[4], const unsigned char *rows, int k) {
  const int lane = laneIndex();
  loadMatrices(a, rows + (lane / 8 % 2 * 8 + lane % 8) * paddedRowBytes(kDim) + (k * 16 + lane / 16 * 8) * 2);
}

// The right operands for 16 tokens' keys, dimensions [16 k, 16 k + 16): b[0..1] tokens 0 .. 7, b[2..3] tokens 8 .. 15.
template <int kDim> HEADRACE_DEVICE void loadKeys(uint32_t (&b)[4], const unsigned char *rows, int k) {
  const int lane = laneIndex();
  loadMatrices(b, rows + (lane / 16 * 8 + lane % 8) * paddedRowBytes(kDim) + (k * 16 + lane / 8 % 2 * 8) * 2);
}

// The right operands for 16 tokens' values: b[0..1] dimensions [16 d, 16 d + 8), b[2..3] the eight after them.
template <int kDim> HEADRACE_DEVICE void loadValues(uint32_t (&b)[4], const unsigned char *rows, int d) {
  const int lane = laneIndex();
  loadMatricesTransposed(b, rows + (lane / 8 % 2 * 8 + lane % 8) * paddedRowBytes(kDim) + (d * 16 + lane / 16 * 8) * 2);
}

// Column i of score tile j is token j * 8 + lane % 4 * 2 + i of the ones in hand; a row attends to the first `reach`.
template <int kTiles> HEADRACE_DEVICE void maskScores(float (&s)[kTiles][4], const int32_t (&reach)[2]) {
  HEADRACE_LOOP
  for (int j = 0; j < kTiles; ++j) {
    HEADRACE_LOOP
    for (int i = 0; i < 4; ++i)
      if (j * 8 + laneIndex() % 4 * 2 + i % 2 >= reach[i / 2])
        s[j][i] = -__builtin_inff();
  }
}

// One step of the online softmax: scores become exponentials, the state is brought to the new largest score. Scores
// are multiplied by scaleLog2 = scale * log2(e), so that exponentials are powers of two. A row with no token yet keeps
// minus infinity and zeros.
//
// A row that a step has no token for must come out of it with the bits it went in with: the correction is one only if
// both products are rounded alike, so none of them is left for the compiler to fuse as it likes (a b - c d has two
// fused forms, which differ by the kernel they are compiled into).
template <int kTiles, int kDim>
HEADRACE_DEVICE void softmaxStep(float (&s)[kTiles][4], QueryRows<kDim> &rows, float scaleLog2) {
  float correction[2];
  HEADRACE_LOOP
  for (int r = 0; r < 2; ++r) {
    float largest = s[0][2 * r];
    HEADRACE_LOOP
    for (int j = 0; j < kTiles; ++j)
      largest = fmaxf(largest, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
    largest = fmaxf(largest, shuffleXor(largest, 1));
    largest = fmaxf(largest, shuffleXor(largest, 2));
    largest = fmaxf(rows.largest[r], largest);
    const float shift = largest == -__builtin_inff() ? 0.0f : multiplyRounded(largest, scaleLog2);
    correction[r] = exp2Fast(multiplyRounded(rows.largest[r], scaleLog2) - shift);
    rows.largest[r] = largest;
    float sum = 0.0f;
    HEADRACE_LOOP
    for (int j = 0; j < kTiles; ++j) {
      s[j][2 * r] = exp2Fast(fmaf(s[j][2 * r], scaleLog2, -shift));
      s[j][2 * r + 1] = exp2Fast(fmaf(s[j][2 * r + 1], scaleLog2, -shift));
      sum += s[j][2 * r] + s[j][2 * r + 1];
    }
    rows.total[r] = fmaf(rows.total[r], correction[r], sum);
  }
  // Most steps leave the largest score alone; multiplying by one would change nothing.
  if (ballot(correction[0] != 1.0f || correction[1] != 1.0f) != 0) {
    HEADRACE_LOOP
    for (int i = 0; i < QueryRows<kDim>::kColumns; ++i) {
      rows.output[i][0] *= correction[0], rows.output[i][1] *= correction[0];
      rows.output[i][2] *= correction[1], rows.output[i][3] *= correction[1];
    }
  }
}

// The exponentials of 16 tokens (score tiles 2 g and 2 g + 1) as a left operand.
template <Elem kElem, int kTiles>
HEADRACE_DEVICE void packScores(uint32_t (&a)[4], const float (&s)[kTiles][4], int g) {
  a[0] = packPair<kElem>(s[2 * g][0], s[2 * g][1]);
  a[1] = packPair<kElem>(s[2 * g][2], s[2 * g][3]);
  a[2] = packPair<kElem>(s[2 * g + 1][0], s[2 * g + 1][1]);
  a[3] = packPair<kElem>(s[2 * g + 1][2], s[2 * g + 1][3]);
}

// ---- bringing rows of the cache to shared memory, 16 tokens a warp

template <int kDim> struct CacheRows {
  static constexpr bool kPacked = false;
  const unsigned char *cache;
  uint32_t kvHead;
  CacheUnits units;

  HEADRACE_DEVICE static CacheRows of(const AttentionArgs &args, uint32_t kvHead) {
    return {static_cast<const unsigned char *>(args.kv), kvHead, {args.segments, args.kvHeads, args.blockTokens, kDim}};
  }

  // Where k of token `first` + lane % 16 begins, for the lane, in units of 16 elements, by the sequence's row of the
  // block table; past the end that of the scratch block.
  HEADRACE_DEVICE uint32_t keyOf(const int32_t *blocks, int32_t first, int32_t end) const {
    const int32_t token = first + laneIndex() % 16;
    return token < end ? units.keyOf(blocks, static_cast<uint32_t>(token), kvHead) : units.start;
  }

  // Starts the copies of 16 rows, `offset` units after each lane's keyOf(..., first, end); zeroes past the end.
  // Unrolling further than by two holds addresses in registers that the sums need.
  HEADRACE_DEVICE void copy(unsigned char *to, uint32_t key, uint32_t offset, int32_t first, int32_t end) const {
    constexpr int kVectors = kDim / 8; // 16 bytes each, of a row
    const int32_t valid = end - first;
    HEADRACE_LOOP_BY(2)
    for (int i = 0; i < kVectors / 2; ++i) { // 16 * kVectors of them by 32 lanes
      const int v = i * 32 + laneIndex(), r = v / kVectors, column = v % kVectors;
      const int64_t from = int64_t{shuffle(key, r) + (r < valid ? offset : 0)} * (kCacheUnit * 2);
      copyAsync16(to + r * paddedRowBytes(kDim) + column * 16, cache + from + column * 16, r < valid);
    }
  }
};

// Rows of packed caches, units being 16 bytes.
template <int kDim> struct PackedCacheRows {
  static constexpr bool kPacked = true;
  static constexpr int kGroup = packedGroup(kDim), kGroups = kDim / kGroup;
  const unsigned char *cache;
  uint32_t kvHead;
  CacheUnits units;
  int codeBits;

  HEADRACE_DEVICE static PackedCacheRows of(const AttentionArgs &args, uint32_t kvHead) {
    const int codeBits = args.kvPacking.codeBits;
    return {static_cast<const unsigned char *>(args.kv),
            kvHead,
            {args.segments, args.kvHeads, args.blockTokens, kDim * codeBits / 8},
            codeBits};
  }

  HEADRACE_DEVICE uint32_t keyOf(const int32_t *blocks, int32_t first, int32_t end) const {
    const int32_t token = first + laneIndex() % 16;
    return token < end ? units.keyOf(blocks, static_cast<uint32_t>(token), kvHead) : units.start;
  }

  // As CacheRows, to packedRowsBytes() of shared memory.
  HEADRACE_DEVICE void copy(unsigned char *to, uint32_t key, uint32_t offset, int32_t first, int32_t end) const {
    if (codeBits == 8)
      copyCodes<8>(to, key, offset, first, end);
    else
      copyCodes<4>(to, key, offset, first, end);
    const int row = laneIndex();
    if (row >= 16)
      return;
    // The row of k in its block, and so where the block begins; past the end the scratch block's first.
    const bool valid = first + row < end;
    const uint32_t own =
        valid ? kvHead * units.blockTokens + static_cast<uint32_t>(first + row) % units.blockTokens : 0;
    const int64_t begin = int64_t{key - own * units.rowUnits} * 16, plane = int64_t{units.kvHeads} * units.blockTokens;
    const int64_t header = begin + 2 * plane * units.rowUnits * 16 + ((offset != 0 ? plane : 0) + own) * kGroups * 4;
    HEADRACE_LOOP
    for (int g = 0; g < kGroups; ++g)
      copyAsync4(to + 16 * kDim + (row * kGroups + g) * 4, cache + header + g * 4, valid);
  }

  // What has come, as 16 rows of elements. Zeroes stay zeroes.
  template <Elem kElem> HEADRACE_DEVICE void unpack(const unsigned char *from, unsigned char *rows) const {
    constexpr int kParts = kDim / 16; // of a row
    HEADRACE_LOOP_BY(1)
    for (int i = 0; i < kParts / 2; ++i) { // 16 * kParts of them by 32 lanes
      const int v = i * 32 + laneIndex(), r = v / kParts, part = v % kParts;
      const GroupValues group(
          *reinterpret_cast<const uint32_t *>(from + 16 * kDim + (r * kGroups + part * 16 / kGroup) * 4));
      float x[16];
      if (codeBits == 8) {
        const uint4 codes = *reinterpret_cast<const uint4 *>(from + r * kDim + part * 16);
        group.of<8, 4>(codes.x, x);
        group.of<8, 4>(codes.y, x + 4);
        group.of<8, 4>(codes.z, x + 8);
        group.of<8, 4>(codes.w, x + 12);
      } else { // the first eight are the lower halves
        constexpr uint32_t kHalves = 0x0f0f0f0fu;
        const auto *codes = reinterpret_cast<const uint32_t *>(from + (r * kDim + part * 16) / 2);
        group.of<8, 4>(codes[0] & kHalves, x);
        group.of<8, 4>(codes[1] & kHalves, x + 4);
        group.of<8, 4>(codes[0] >> 4 & kHalves, x + 8);
        group.of<8, 4>(codes[1] >> 4 & kHalves, x + 12);
      }
      auto *out = reinterpret_cast<uint4 *>(rows + r * paddedRowBytes(kDim) + part * 32);
      HEADRACE_LOOP
      for (int half = 0; half < 2; ++half)
        out[half] =
            uint4{packPair<kElem>(x[8 * half], x[8 * half + 1]), packPair<kElem>(x[8 * half + 2], x[8 * half + 3]),
                  packPair<kElem>(x[8 * half + 4], x[8 * half + 5]), packPair<kElem>(x[8 * half + 6], x[8 * half + 7])};
    }
  }

private:
  template <int kBits>
  HEADRACE_DEVICE void copyCodes(unsigned char *to, uint32_t key, uint32_t offset, int32_t first, int32_t end) const {
    constexpr int kVectors = kDim * kBits / 128; // 16 bytes each, of a row
    const int32_t valid = end - first;
    HEADRACE_LOOP_BY(2)
    for (int i = 0; i < (kVectors + 1) / 2; ++i) {
      const int v = i * 32 + laneIndex(), r = v / kVectors, column = v % kVectors;
      const int64_t from = int64_t{shuffle(key, r) + (r < valid ? offset : 0)} * 16;
      if (v < 16 * kVectors)
        copyAsync16(to + r * (kDim * kBits / 8) + column * 16, cache + from + column * 16, r < valid);
    }
  }
};

} // namespace headrace::kernels
