// SPDX-License-Identifier: Apache-2.0
//
// One chunk of the cache for queries that all reach the same tokens, as in decoding: read where it lies, keys
// transposed in registers, the next rows asked for ahead of their use. The sums are those of the panels in
// AttentionHost.h, term by term in the same order, so the bits are the same; panels pay once many queries share them.
#pragma once

#include "kernels/host/KeyBlock.h"
#include "kernels/host/MicroKernel.h"

namespace headrace::kernels {

template <typename V, Elem kElem> struct AttentionDirect {
  static constexpr int kMostQueries = Line<V>::kQueries; // R: with more, sums leave the registers

  // A head's rows are whole vectors; rows of queries, sums and scores lie `dim` and `stride` floats apart. `keys` and
  // `next`: element indices of tokens' rows of k in `kv`; v_t lies `toValues` elements after k_t.

  // What is read after this, and so asked for: rows `toNext` elements after those of `next`, of as many tokens; null:
  // nothing.
  struct Next {
    const int64_t *rows;
    int64_t toNext;
  };

  // scores[r * stride + t] = q_r . k_t for t below `tokens`, up to the next multiple of 16 anything finite or not.
  template <int R>
  static void scores(const void *kv, const int64_t *keys, const Next &next, int64_t tokens, const float *q, int64_t dim,
                     int64_t headDim, float *scores, int64_t stride) {
    if (headDim % KeyBlock<V, kElem>::kDims == 0)
      scoresBy<KeyBlock<V, kElem>, R>(kv, keys, next, tokens, q, dim, headDim, scores, stride);
    else
      scoresBy<NarrowKeyBlock<V, kElem>, R>(kv, keys, next, tokens, q, dim, headDim, scores, stride);
  }

  // out[r * dim + d] = out[r * dim + d] * factor[r] + (sum of p[r * stride + t] v_t[d] over the tokens); kFold false:
  // the sum alone.
  template <int R, bool kFold = true>
  static void outputs(const void *kv, const int64_t *keys, const Next &next, int64_t toValues, int64_t tokens,
                      const float *p, int64_t stride, int64_t headDim, const float *factor, float *out, int64_t dim) {
    using Wide = typename Line<V>::Wide;
    constexpr int P = Wide::kLanes > V::kLanes ? (R <= 4 ? 4 : 2) : R == 1 ? 8 : R <= 3 ? 4 : 2;
    Asking asking{kv, next, next.rows != nullptr ? tokens : 0, headDim};
    int64_t d = 0;
    for (; d + P * Wide::kLanes <= headDim; d += P * Wide::kLanes)
      columns<Wide, R, P, kFold>(kv, keys, asking, toValues, d, tokens, p, stride, factor, out + d, dim);
    for (; d < headDim; d += V::kLanes)
      columns<V, R, 1, kFold>(kv, keys, asking, toValues, d, tokens, p, stride, factor, out + d, dim);
  }

  // Calls f(first, integral constant) for tiles of up to kMost of `count` queries.
  template <int kMost = kMostQueries, typename F> static HEADRACE_INLINE void forTiles(int64_t count, F f) {
    int64_t i = 0;
    for (; i + kMost <= count; i += kMost)
      f(i, Height<kMost>());
    lowerTile<kMost - 1>(i, count - i, f);
  }

private:
  static constexpr int kLine = kElem == Elem::F32 ? 16 : 32; // elements of a cache line

  template <int R> struct Height { static constexpr int value = R; };
  template <int R, typename F> static HEADRACE_INLINE void lowerTile(int64_t i, int64_t count, F &f) {
    if constexpr (R > 0) {
      if (count == R)
        f(i, Height<R>());
      else
        lowerTile<R - 1>(i, count, f);
    }
  }

  // Asks for the rows that are read next, a few lines at a time: in the order of their addresses, whatever the order of
  // the work meanwhile, and into the second cache, which is how memory gives most: the first has room for few requests.
  struct Asking {
    const void *kv;
    const Next &next;
    int64_t tokens, headDim;
    int64_t token = 0, d = 0;

    HEADRACE_INLINE void lines(int count) {
      for (int i = 0; i < count && token < tokens; ++i) {
        const int64_t at = next.rows[token] + next.toNext + d;
        __builtin_prefetch(static_cast<const char *>(kv) + at * elemBytes(kElem), 0, 2);
        d += kLine;
        if (d >= headDim)
          d = 0, ++token;
      }
    }
  };

  template <typename Block, int R>
  static HEADRACE_INLINE void scoresBy(const void *kv, const int64_t *keys, const Next &next, int64_t tokens,
                                       const float *q, int64_t dim, int64_t headDim, float *scores, int64_t stride) {
    constexpr int64_t kGroup = Block::kTokens;
    constexpr int G = R == 1 ? 4 : R == 2 ? 2 : 1;
    Asking asking{kv, next, next.rows != nullptr ? tokens : 0, headDim};
    int64_t t = 0;
    for (; t + G * kGroup <= tokens; t += G * kGroup)
      group<Block, R, G>(kv, keys + t, asking, q, dim, headDim, scores + t, stride);
    for (; t + kGroup <= tokens; t += kGroup)
      group<Block, R, 1>(kv, keys + t, asking, q, dim, headDim, scores + t, stride);
    if (t == tokens)
      return;
    int64_t last[kGroup]; // the last token stands in for those that follow it
    for (int64_t j = 0; j < kGroup; ++j)
      last[j] = keys[t + j < tokens ? t + j : tokens - 1];
    group<Block, R, 1>(kv, last, asking, q, dim, headDim, scores + t, stride);
  }

  template <typename Block, int R, int G>
  static HEADRACE_INLINE void group(const void *kv, const int64_t *keys, Asking &asking, const float *q, int64_t dim,
                                    int64_t headDim, float *scores, int64_t stride) {
    using Lanes = typename Block::Lanes;
    constexpr int kTokens = Block::kTokens, kDims = Block::kDims;
    Lanes sum[R][G];
    HEADRACE_UNROLL
    for (int r = 0; r < R; ++r)
      HEADRACE_UNROLL
    for (int g = 0; g < G; ++g)
      sum[r][g] = Lanes::zero();
    for (int64_t d = 0; d < headDim; d += kDims) {
      HEADRACE_UNROLL
      for (int g = 0; g < G; ++g) {
        asking.lines(kTokens * kDims / kLine);
        Lanes lines[kDims];
        Block::load(kv, keys + g * kTokens, d, lines);
        HEADRACE_UNROLL
        for (int j = 0; j < kDims; ++j)
          HEADRACE_UNROLL
        for (int r = 0; r < R; ++r)
          sum[r][g] = Lanes::fma(Lanes::set(q[r * dim + d + j]), lines[j], sum[r][g]);
      }
    }
    HEADRACE_UNROLL
    for (int r = 0; r < R; ++r)
      HEADRACE_UNROLL
    for (int g = 0; g < G; ++g)
      sum[r][g].store(scores + r * stride + g * kTokens);
  }

  template <typename L, int R, int P, bool kFold>
  static HEADRACE_INLINE void columns(const void *kv, const int64_t *keys, Asking &asking, int64_t toValues, int64_t d,
                                      int64_t tokens, const float *p, int64_t stride, const float *factor, float *out,
                                      int64_t dim) {
    L sum[R][P];
    HEADRACE_UNROLL
    for (int r = 0; r < R; ++r)
      HEADRACE_UNROLL
    for (int c = 0; c < P; ++c)
      sum[r][c] = L::zero();
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t row = keys[t] + toValues + d;
      asking.lines(P * L::kLanes > kLine ? P * L::kLanes / kLine : 1);
      L line[P];
      HEADRACE_UNROLL
      for (int c = 0; c < P; ++c)
        line[c] = loadElems<L>(kv, row + c * L::kLanes, kElem);
      HEADRACE_UNROLL
      for (int r = 0; r < R; ++r) {
        const L weight = L::set(p[r * stride + t]);
        HEADRACE_UNROLL
        for (int c = 0; c < P; ++c)
          sum[r][c] = L::fma(weight, line[c], sum[r][c]);
      }
    }
    HEADRACE_UNROLL
    for (int r = 0; r < R; ++r) {
      const L scale = kFold ? L::set(factor[r]) : L::zero();
      HEADRACE_UNROLL
      for (int c = 0; c < P; ++c) {
        float *o = out + r * dim + c * L::kLanes;
        (kFold ? L::fma(L::load(o), scale, sum[r][c]) : sum[r][c]).store(o);
      }
    }
  }
};

} // namespace headrace::kernels
