// SPDX-License-Identifier: Apache-2.0
//
// Sixteen columns of a panel, which are multiplied by one number and added to sixteen sums: nothing goes from one
// column to another, so how many registers they are makes no difference to a result. Here two vectors of eight; wider
// ones specialise it (VecAvx512.h).
#pragma once

#include "kernels/host/VecMath.h"

namespace headrace::kernels {

inline constexpr int kPanelColumns = 16;

template <typename V> struct Line {
  // Of the tile of many rows: 6 x 1 x 16 sums, two vectors of w and one of x are 15 of AVX2's 16 registers.
  static constexpr int kRows = 6, kPanels = 1;
  // Whether a row's factor is loaded once for all panels, whose lines are kept in registers meanwhile, or for each
  // anew.
  static constexpr bool kFactorOnce = false;
  // Of a tile of so many rows: several where one would leave the multipliers waiting for each other's sums.
  static constexpr int panels(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
  // The same where a line of w is made of codes, with its group's scales and minima (UnpackHost.h).
  static constexpr int packedPanels(int rows) { return rows == 1 ? 2 : 1; }
  static constexpr int kQueries = 4; // of a tile of attention that decodes
  V a, b;

  using Wide = V; // the widest vector
  static HEADRACE_INLINE V factor(float x) { return V::set(x); }

  static HEADRACE_INLINE Line zero() { return {V::zero(), V::zero()}; }
  static HEADRACE_INLINE Line set(float x) { return {V::set(x), V::set(x)}; }
  static HEADRACE_INLINE Line load(const float *p) { return {V::load(p), V::load(p + V::kLanes)}; }
  static HEADRACE_INLINE Line loadF16(const uint16_t *p) { return {V::loadF16(p), V::loadF16(p + V::kLanes)}; }
  // Columns in whatever order is cheapest; bf16InOrder() puts sums of such lines into the order of the columns.
  static HEADRACE_INLINE Line loadBf16(const uint16_t *p) {
    Line line;
    V::loadBf16EvenOdd(p, line.a, line.b);
    return line;
  }
  HEADRACE_INLINE Line bf16InOrder() const {
    Line line = *this;
    V::joinEvenOdd(line.a, line.b);
    return line;
  }
  // Codes of one column of a panel: 16 bytes, or 8 whose lower halves are of the first eight rows.
  static HEADRACE_INLINE Line loadCodes8(const uint8_t *p) { return {V::loadBytes(p), V::loadBytes(p + V::kLanes)}; }
  static HEADRACE_INLINE Line loadCodes4(const uint8_t *p) {
    Line line;
    V::loadNibbles(p, line.a, line.b);
    return line;
  }
  HEADRACE_INLINE void store(float *p) const { a.store(p), b.store(p + V::kLanes); }
  friend HEADRACE_INLINE Line operator+(Line x, Line y) { return {x.a + y.a, x.b + y.b}; }
  static HEADRACE_INLINE Line fma(V x, Line w, Line sum) { return {V::fma(x, w.a, sum.a), V::fma(x, w.b, sum.b)}; }
  static HEADRACE_INLINE Line fma(Line x, Line y, Line sum) {
    return {V::fma(x.a, y.a, sum.a), V::fma(x.b, y.b, sum.b)};
  }
};

} // namespace headrace::kernels
