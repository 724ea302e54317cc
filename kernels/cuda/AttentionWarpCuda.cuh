// SPDX-License-Identifier: Apache-2.0
//
// What a warp does in the tensor-core attention kernels: 16 queries against tokens that lie in shared memory, by the
// online softmax (Milakov and Gimelshein 2018, Dao et al. 2022).
//
// Fragments (PTX ISA, mma.m16n8k16): a lane holds of a 16 x 8 result rows lane / 4 and lane / 4 + 8, columns
// lane % 4 * 2 and the next. Scores in that form, rounded and packed, are the left operand of the product with v.
#pragma once

#include "kernels/AttentionTiles.h"
#include "kernels/cuda/CudaElems.cuh"

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
  const unsigned char *cache;
  uint32_t kvHead;
  CacheUnits units;

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

} // namespace headrace::kernels
