// SPDX-License-Identifier: Apache-2.0
//
// The register tile that Linear and Attention share: R rows of x times P panels of 16 columns,
//   sum[r][p][c] += x[r * xStride + k] * w[p * wPanelStride + k * wStep + c]   for k = 0, 1, ..., n - 1 in this order,
// one fused multiply-add each. An element's value depends on its own row and column only, never on R or P.
#pragma once

#include "kernels/host/VecMath.h"

namespace headrace::kernels {

inline constexpr int kPanelColumns = 16;
inline constexpr int kTileRows = 6; // 6 x 16 sums, two vectors of w and one of x: 15 of AVX2's 16 registers

// How 16 columns of w become two vectors; `inOrder` puts the sums into the order of the columns.
template <typename V> struct PanelF32 {
  using Element = float;
  static HEADRACE_INLINE void load(const float *p, V &a, V &b) { a = V::load(p), b = V::load(p + V::kLanes); }
  static HEADRACE_INLINE void inOrder(V &, V &) {}
};
template <typename V> struct PanelF16 {
  using Element = uint16_t;
  static HEADRACE_INLINE void load(const uint16_t *p, V &a, V &b) { a = V::loadF16(p), b = V::loadF16(p + V::kLanes); }
  static HEADRACE_INLINE void inOrder(V &, V &) {}
};
template <typename V> struct PanelBf16 {
  using Element = uint16_t;
  static HEADRACE_INLINE void load(const uint16_t *p, V &a, V &b) { V::loadBf16EvenOdd(p, a, b); }
  static HEADRACE_INLINE void inOrder(V &a, V &b) { V::joinEvenOdd(a, b); }
};

// F32 lines that a tile over W kept.
template <typename V, typename W> struct PanelKept {
  using Element = float;
  static HEADRACE_INLINE void load(const float *p, V &a, V &b) { a = V::load(p), b = V::load(p + V::kLanes); }
  static HEADRACE_INLINE void inOrder(V &a, V &b) { W::inOrder(a, b); }
};

template <typename V, int R, int P> struct Tile {
  V sum[R][P][2];

  HEADRACE_INLINE void clear() {
    HEADRACE_UNROLL
    for (int r = 0; r < R; ++r)
      HEADRACE_UNROLL
    for (int p = 0; p < P; ++p)
      sum[r][p][0] = sum[r][p][1] = V::zero();
  }

  // Continues sums that `store` wrote, of one row and in column order (PanelF32).
  template <typename W> HEADRACE_INLINE void load(const float *in) {
    static_assert(R == 1);
    HEADRACE_UNROLL
    for (int p = 0; p < P; ++p)
      W::load(in + p * kPanelColumns, sum[0][p][0], sum[0][p][1]);
  }

  // kAhead: also asks for memory, at `ahead` + k * aheadStep bytes for every k and, as far from there as from panel to
  // panel of w, for every other panel. kKeep: also stores the two vectors of every line of w to `keep`, 16 floats a
  // line, for PanelKept.
  template <typename W, bool kAhead = false, bool kKeep = false>
  HEADRACE_INLINE void multiply(const float *x, int64_t xStride, const typename W::Element *w, int64_t wPanelStride,
                                int64_t wStep, int64_t n, const char *ahead = nullptr, int64_t aheadStep = 0,
                                float *keep = nullptr) {
    for (int64_t k = 0; k < n; ++k) {
      if constexpr (kAhead)
        HEADRACE_UNROLL
      for (int p = 0; p < P; ++p)
        __builtin_prefetch(ahead + k * aheadStep + p * wPanelStride * static_cast<int64_t>(sizeof *w));
      HEADRACE_UNROLL
      for (int p = 0; p < P; ++p) {
        // Otherwise the compiler keeps the factors of all rows for the next panel and spills sums in their place.
        if (p > 0 && R > 2)
          asm volatile("" ::: "memory");
        V a, b;
        W::load(w + p * wPanelStride + k * wStep, a, b);
        if constexpr (kKeep) {
          a.store(keep + k * kPanelColumns);
          b.store(keep + k * kPanelColumns + V::kLanes);
        }
        HEADRACE_UNROLL
        for (int r = 0; r < R; ++r) {
          const V factor = V::set(x[r * xStride + k]);
          sum[r][p][0] = V::fma(factor, a, sum[r][p][0]);
          sum[r][p][1] = V::fma(factor, b, sum[r][p][1]);
        }
      }
    }
  }

  // out[r * stride + p * 16 + c] = sum, or += sum.
  template <typename W> HEADRACE_INLINE void store(float *out, int64_t stride, bool add) {
    HEADRACE_UNROLL
    for (int r = 0; r < R; ++r) {
      HEADRACE_UNROLL
      for (int p = 0; p < P; ++p) {
        V a = sum[r][p][0], b = sum[r][p][1];
        W::inOrder(a, b);
        float *o = out + r * stride + p * kPanelColumns;
        if (add) {
          a = V::load(o) + a;
          b = V::load(o + V::kLanes) + b;
        }
        a.store(o);
        b.store(o + V::kLanes);
      }
    }
  }
};

} // namespace headrace::kernels
