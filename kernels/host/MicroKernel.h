// SPDX-License-Identifier: Apache-2.0
//
// The register tile that Linear and Attention share: R rows of x times P panels of 16 columns,
//   sum[r][p][c] += x[r * xStride + k] * w[p * wPanelStride + k * wStep + c]   for k = 0, 1, ..., n - 1 in this order,
// one fused multiply-add each. An element's value depends on its own row and column only, never on R or P.
#pragma once

#include "kernels/host/Line.h"

namespace headrace::kernels {

inline constexpr int kTileRows = 6; // of which every instruction set makes a tile

// How 16 elements of w become a line; `inOrder` puts a line of sums into the order of the columns.
template <typename V> struct PanelF32 {
  using Element = float;
  static HEADRACE_INLINE Line<V> load(const float *p) { return Line<V>::load(p); }
  static HEADRACE_INLINE Line<V> inOrder(Line<V> line) { return line; }
};
template <typename V> struct PanelF16 {
  using Element = uint16_t;
  static HEADRACE_INLINE Line<V> load(const uint16_t *p) { return Line<V>::loadF16(p); }
  static HEADRACE_INLINE Line<V> inOrder(Line<V> line) { return line; }
};
template <typename V> struct PanelBf16 {
  using Element = uint16_t;
  static HEADRACE_INLINE Line<V> load(const uint16_t *p) { return Line<V>::loadBf16(p); }
  static HEADRACE_INLINE Line<V> inOrder(Line<V> line) { return line.bf16InOrder(); }
};

// F32 lines that a tile over W kept.
template <typename V, typename W> struct PanelKept {
  using Element = float;
  static HEADRACE_INLINE Line<V> load(const float *p) { return Line<V>::load(p); }
  static HEADRACE_INLINE Line<V> inOrder(Line<V> line) { return W::inOrder(line); }
};

// Memory that is asked for ahead of its use, in bytes: from line to line, and from panel to panel.
struct Ahead {
  const char *at = nullptr;
  int64_t step = 0, panelStride = 0;
};

template <typename V, int R, int P> struct Tile {
  Line<V> sum[R][P];

  HEADRACE_INLINE void clear() {
    HEADRACE_UNROLL
    for (int r = 0; r < R; ++r)
      HEADRACE_UNROLL
    for (int p = 0; p < P; ++p)
      sum[r][p] = Line<V>::zero();
  }

  // Continues sums that `store` wrote, of one row and in column order (PanelF32).
  template <typename W> HEADRACE_INLINE void load(const float *in) {
    static_assert(R == 1);
    HEADRACE_UNROLL
    for (int p = 0; p < P; ++p)
      sum[0][p] = W::load(in + p * kPanelColumns);
  }

  // kAhead: also asks for memory, a step further for every k. kKeep: also stores every line of w to `keep` for
  // PanelKept, 16 floats each, those of one k behind each other.
  template <typename W, bool kAhead = false, bool kKeep = false>
  HEADRACE_INLINE void multiply(const float *x, int64_t xStride, const typename W::Element *w, int64_t wPanelStride,
                                int64_t wStep, int64_t n, const Ahead &ahead = {}, float *keep = nullptr) {
    for (int64_t k = 0; k < n; ++k) {
      if constexpr (kAhead)
        HEADRACE_UNROLL
      for (int p = 0; p < P; ++p)
        __builtin_prefetch(ahead.at + k * ahead.step + p * ahead.panelStride);
      addColumn(x + k, xStride,
                [&](int p) HEADRACE_INLINE_LAMBDA { return lineOf<W, kKeep>(w, wPanelStride, wStep, k, p, keep); });
    }
  }

  // One k: x has its numbers, xStride apart, lineOf(p) makes panel p's line.
  template <typename LineOf> HEADRACE_INLINE void addColumn(const float *x, int64_t xStride, const LineOf &lineOf) {
    if constexpr (Line<V>::kFactorOnce) {
      Line<V> lines[P];
      HEADRACE_UNROLL
      for (int p = 0; p < P; ++p)
        lines[p] = lineOf(p);
      HEADRACE_UNROLL
      for (int r = 0; r < R; ++r) {
        const auto factor = Line<V>::factor(x[r * xStride]);
        HEADRACE_UNROLL
        for (int p = 0; p < P; ++p)
          sum[r][p] = Line<V>::fma(factor, lines[p], sum[r][p]);
      }
    } else {
      HEADRACE_UNROLL
      for (int p = 0; p < P; ++p) {
        // Otherwise the compiler keeps the factors of all rows for the next panel and spills sums in their place.
        if (p > 0 && R > 2)
          asm volatile("" ::: "memory");
        const Line<V> line = lineOf(p);
        HEADRACE_UNROLL
        for (int r = 0; r < R; ++r)
          sum[r][p] = Line<V>::fma(Line<V>::factor(x[r * xStride]), line, sum[r][p]);
      }
    }
  }

  // out[r * stride + p * 16 + c] = sum, or += sum.
  template <typename W> HEADRACE_INLINE void store(float *out, int64_t stride, bool add) {
    HEADRACE_UNROLL
    for (int r = 0; r < R; ++r) {
      HEADRACE_UNROLL
      for (int p = 0; p < P; ++p) {
        const Line<V> line = W::inOrder(sum[r][p]);
        float *o = out + r * stride + p * kPanelColumns;
        (add ? Line<V>::load(o) + line : line).store(o);
      }
    }
  }

private:
  template <typename W, bool kKeep>
  static HEADRACE_INLINE Line<V> lineOf(const typename W::Element *w, int64_t panelStride, int64_t step, int64_t k,
                                        int p, float *keep) {
    const Line<V> line = W::load(w + p * panelStride + k * step);
    if constexpr (kKeep)
      line.store(keep + (k * P + p) * kPanelColumns);
    return line;
  }
};

} // namespace headrace::kernels
