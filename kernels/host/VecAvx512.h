// SPDX-License-Identifier: Apache-2.0
//
// The vectors of processors with AVX-512. Sums across lanes are those of eight, as everywhere, so that results are the
// same bits as AVX2's; where lanes do not meet (columns of a panel, tokens side by side), they are sixteen. Only files
// compiled with AVX-512 (F, BW, DQ, VL) include this.
#pragma once

#include "kernels/host/KeyBlock.h"
#include "kernels/host/Line.h"
#include "kernels/host/VecAvx2.h"

namespace headrace::kernels {

using VecAvx512 = Vec256<HostIsa::Avx512>;

// Sixteen F32 lanes; see VecPortable.h for what each member means.
struct Vec512 {
  static constexpr int kLanes = 16;
  __m512 v;

  static HEADRACE_INLINE Vec512 zero() { return {_mm512_setzero_ps()}; }
  static HEADRACE_INLINE Vec512 set(float x) { return {_mm512_set1_ps(x)}; }
  static HEADRACE_INLINE Vec512 load(const float *p) { return {_mm512_loadu_ps(p)}; }
  static HEADRACE_INLINE Vec512 loadF16(const uint16_t *p) { return {_mm512_cvtph_ps(words(p))}; }
  static HEADRACE_INLINE Vec512 loadBf16(const uint16_t *p) {
    // Each word to the upper half of its lane, zeros below: one instruction where widening and shifting are two.
    const __m512i to = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7, 0, 6, 0, 5, 0, 4, 0, 3,
                                        0, 2, 0, 1, 0, 0, 0);
    return {_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, to, _mm512_castsi256_si512(words(p))))};
  }
  static HEADRACE_INLINE Vec512 loadBytes(const uint8_t *p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p))))};
  }
  // The lower halves of 8 bytes, then the upper ones: a table's index has four bits, what stands above them is no
  // matter.
  static HEADRACE_INLINE Vec512 loadNibbles(const uint8_t *p) {
    int64_t bytes;
    __builtin_memcpy(&bytes, p, sizeof(bytes));
    const __m512i twice = _mm512_cvtepu8_epi32(_mm_set1_epi64x(bytes));
    const __m512i index = _mm512_srlv_epi32(twice, _mm512_set_epi32(4, 4, 4, 4, 4, 4, 4, 4, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m512 codes = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return {_mm512_permutexvar_ps(index, codes)};
  }
  HEADRACE_INLINE void store(float *p) const { _mm512_storeu_ps(p, v); }
  friend HEADRACE_INLINE Vec512 operator+(Vec512 a, Vec512 b) { return {_mm512_add_ps(a.v, b.v)}; }
  static HEADRACE_INLINE Vec512 fma(Vec512 a, Vec512 b, Vec512 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }

  // 16 x 16 words of 32 bits.
  static HEADRACE_INLINE void transpose(__m512i (&r)[16]) {
    __m512i a[16];
    HEADRACE_UNROLL
    for (int i = 0; i < 16; i += 2) {
      a[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
      a[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    HEADRACE_UNROLL
    for (int i = 0; i < 16; i += 4) { // r[i + c]: words c, c + 4, c + 8, c + 12 of rows i to i + 3
      r[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
      r[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
      r[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
      r[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    HEADRACE_UNROLL
    for (int c = 0; c < 4; ++c) {
      a[c] = _mm512_shuffle_i32x4(r[c], r[c + 4], 0x88); // words c, c + 8 of rows 0 to 3, of rows 4 to 7
      a[c + 4] = _mm512_shuffle_i32x4(r[c], r[c + 4], 0xdd);
      a[c + 8] = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0x88);
      a[c + 12] = _mm512_shuffle_i32x4(r[c + 8], r[c + 12], 0xdd);
    }
    HEADRACE_UNROLL
    for (int c = 0; c < 8; ++c) {
      r[c] = _mm512_shuffle_i32x4(a[c], a[c + 8], 0x88);
      r[c + 8] = _mm512_shuffle_i32x4(a[c], a[c + 8], 0xdd);
    }
  }

private:
  static HEADRACE_INLINE __m256i words(const uint16_t *p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
  }
};

template <> struct Line<VecAvx512> {
  static constexpr int kRows = 12, kPanels = 2; // 24 sums, two lines of w and a factor: 27 of 32 registers
  static constexpr bool kFactorOnce = true;
  static constexpr int panels(int rows) { return rows <= 6 ? 4 : 2; }
  static constexpr int packedPanels(int rows) { return rows <= 3 ? 4 : 2; }
  static constexpr int kQueries = 8;
  Vec512 v;

  using Wide = Vec512;
  static HEADRACE_INLINE Vec512 factor(float x) { return Vec512::set(x); }

  static HEADRACE_INLINE Line zero() { return {Vec512::zero()}; }
  static HEADRACE_INLINE Line set(float x) { return {Vec512::set(x)}; }
  static HEADRACE_INLINE Line load(const float *p) { return {Vec512::load(p)}; }
  static HEADRACE_INLINE Line loadF16(const uint16_t *p) { return {Vec512::loadF16(p)}; }
  static HEADRACE_INLINE Line loadBf16(const uint16_t *p) { return {Vec512::loadBf16(p)}; }
  HEADRACE_INLINE Line bf16InOrder() const { return *this; }
  static HEADRACE_INLINE Line loadCodes8(const uint8_t *p) { return {Vec512::loadBytes(p)}; }
  static HEADRACE_INLINE Line loadCodes4(const uint8_t *p) { return {Vec512::loadNibbles(p)}; }
  HEADRACE_INLINE void store(float *p) const { v.store(p); }
  friend HEADRACE_INLINE Line operator+(Line a, Line b) { return {a.v + b.v}; }
  static HEADRACE_INLINE Line fma(Vec512 x, Line w, Line sum) { return {Vec512::fma(x, w.v, sum.v)}; }
  static HEADRACE_INLINE Line fma(Line x, Line y, Line sum) { return {Vec512::fma(x.v, y.v, sum.v)}; }
};

template <Elem kElem> struct KeyBlock<VecAvx512, kElem> {
  using Lanes = Vec512;
  static constexpr int kTokens = 16, kDims = kElem == Elem::BF16 ? 32 : 16;

  static HEADRACE_INLINE void load(const void *kv, const int64_t *rows, int64_t d, Vec512 (&lines)[kDims]) {
    __m512i words[16];
    HEADRACE_UNROLL
    for (int j = 0; j < 16; ++j)
      words[j] = kElem == Elem::BF16 ? _mm512_loadu_si512(static_cast<const uint16_t *>(kv) + rows[j] + d)
                                     : _mm512_castps_si512(loadElems<Vec512>(kv, rows[j] + d, kElem).v);
    Vec512::transpose(words);
    HEADRACE_UNROLL
    for (int j = 0; j < 16; ++j)
      if constexpr (kElem == Elem::BF16) { // two to a word, the first in the lower half
        lines[2 * j] = {_mm512_castsi512_ps(_mm512_slli_epi32(words[j], 16))};
        lines[2 * j + 1] = {_mm512_castsi512_ps(_mm512_and_si512(words[j], _mm512_set1_epi32(-65536)))};
      } else {
        lines[j] = {_mm512_castsi512_ps(words[j])};
      }
  }
};

} // namespace headrace::kernels
