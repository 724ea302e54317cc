// SPDX-License-Identifier: Apache-2.0
//
// The vectors of processors with AVX-512. Sums of several lanes are those of eight, as everywhere, so that results are
// the same bits as AVX2's; sixteen columns that advance together, none of which meets another, are one register. Only
// files compiled with AVX-512 (F, BW, DQ, VL) include this.
#pragma once

#include "kernels/host/Line.h"
#include "kernels/host/VecAvx2.h"

namespace headrace::kernels {

using VecAvx512 = Vec256<HostIsa::Avx512>;

template <> struct Line<VecAvx512> {
  static constexpr int kRows = 12, kPanels = 2; // 24 sums, two lines of w and a factor: 27 of 32 registers
  static constexpr bool kFactorOnce = true;
  static constexpr int panels(int rows) { return rows == 1 ? 8 : rows <= 3 ? 4 : 2; }
  __m512 v;

  struct Factor {
    __m512 v;
  };
  static HEADRACE_INLINE Factor factor(float x) { return {_mm512_set1_ps(x)}; }

  static HEADRACE_INLINE Line zero() { return {_mm512_setzero_ps()}; }
  static HEADRACE_INLINE Line load(const float *p) { return {_mm512_loadu_ps(p)}; }
  static HEADRACE_INLINE Line loadF16(const uint16_t *p) { return {_mm512_cvtph_ps(words(p))}; }
  static HEADRACE_INLINE Line loadBf16(const uint16_t *p) {
    // Each word to the upper half of its lane, zeros below: one instruction where widening and shifting are two.
    const __m512i to = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0, 3,
                                        0, 2, 0, 1, 0, 0, 0);
    return {_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, to, _mm512_castsi256_si512(words(p))))};
  }
  HEADRACE_INLINE Line bf16InOrder() const { return *this; }
  HEADRACE_INLINE void store(float *p) const { _mm512_storeu_ps(p, v); }
  friend HEADRACE_INLINE Line operator+(Line a, Line b) { return {_mm512_add_ps(a.v, b.v)}; }
  static HEADRACE_INLINE Line fma(Factor x, Line w, Line sum) { return {_mm512_fmadd_ps(x.v, w.v, sum.v)}; }

private:
  static HEADRACE_INLINE __m256i words(const uint16_t *p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
  }
};

} // namespace headrace::kernels
