// SPDX-License-Identifier: Apache-2.0
//
// Eight F32 lanes in one AVX2 register; see VecPortable.h for what each member means. Only files compiled with AVX2,
// FMA and F16C include this. The instruction set that a file is compiled for is part of the type, so that no code of
// one file can stand in for that of another (HostAvx2.cpp).
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/host/HostIsa.h"
#include "kernels/host/VecPortable.h"

namespace headrace::kernels {

template <HostIsa kIsa> struct Vec256 {
  static constexpr int kLanes = 8;
  __m256 v;

  static HEADRACE_INLINE Vec256 zero() { return {_mm256_setzero_ps()}; }
  static HEADRACE_INLINE Vec256 set(float x) { return {_mm256_set1_ps(x)}; }
  static HEADRACE_INLINE Vec256 load(const float *p) { return {_mm256_loadu_ps(p)}; }
  static HEADRACE_INLINE Vec256 loadPartial(const float *p, int64_t n) { return {_mm256_maskload_ps(p, laneMask(n))}; }
  HEADRACE_INLINE void store(float *p) const { _mm256_storeu_ps(p, v); }
  HEADRACE_INLINE void storePartial(float *p, int64_t n) const { _mm256_maskstore_ps(p, laneMask(n), v); }

  static HEADRACE_INLINE Vec256 loadF16(const uint16_t *p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)))};
  }
  static HEADRACE_INLINE float fromF16(uint16_t half) { return _cvtsh_ss(half); }
  static HEADRACE_INLINE Vec256 loadBytes(const uint8_t *p) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p))))};
  }
  static HEADRACE_INLINE void loadNibbles(const uint8_t *p, Vec256 &low, Vec256 &high) {
    __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(p)));
    low = {_mm256_cvtepi32_ps(_mm256_and_si256(bytes, _mm256_set1_epi32(15)))};
    high = {_mm256_cvtepi32_ps(_mm256_srli_epi32(bytes, 4))};
  }
  HEADRACE_INLINE void storeF16(uint16_t *p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static HEADRACE_INLINE Vec256 loadBf16(const uint16_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
  }
  HEADRACE_INLINE void storeBf16(uint16_t *p) const {
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
    __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), packed);
  }
  static HEADRACE_INLINE void loadBf16EvenOdd(const uint16_t *p, Vec256 &even, Vec256 &odd) {
    __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(p));
    even = {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16))};
    odd = {_mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)))};
  }
  static HEADRACE_INLINE void joinEvenOdd(Vec256 &even, Vec256 &odd) {
    __m256 low = _mm256_unpacklo_ps(even.v, odd.v);  // 0..3 and 8..11
    __m256 high = _mm256_unpackhi_ps(even.v, odd.v); // 4..7 and 12..15
    even = {_mm256_permute2f128_ps(low, high, 0x20)};
    odd = {_mm256_permute2f128_ps(low, high, 0x31)};
  }

  friend HEADRACE_INLINE Vec256 operator+(Vec256 a, Vec256 b) { return {_mm256_add_ps(a.v, b.v)}; }
  friend HEADRACE_INLINE Vec256 operator-(Vec256 a, Vec256 b) { return {_mm256_sub_ps(a.v, b.v)}; }
  friend HEADRACE_INLINE Vec256 operator*(Vec256 a, Vec256 b) { return {_mm256_mul_ps(a.v, b.v)}; }
  friend HEADRACE_INLINE Vec256 operator/(Vec256 a, Vec256 b) { return {_mm256_div_ps(a.v, b.v)}; }
  static HEADRACE_INLINE Vec256 fma(Vec256 a, Vec256 b, Vec256 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  static HEADRACE_INLINE Vec256 max(Vec256 a, Vec256 b) { return {_mm256_max_ps(a.v, b.v)}; }
  static HEADRACE_INLINE Vec256 min(Vec256 a, Vec256 b) { return {_mm256_min_ps(a.v, b.v)}; }
  static HEADRACE_INLINE Vec256 firstLanes(Vec256 value, Vec256 other, int64_t n) {
    return {_mm256_blendv_ps(other.v, value.v, _mm256_castsi256_ps(laneMask(n)))};
  }
  HEADRACE_INLINE Vec256 scaleByPowerOf2(Vec256 biased) const {
    __m256i n = _mm256_sub_epi32(_mm256_castps_si256(biased.v), _mm256_set1_epi32(0x4b400000));
    __m256i half = _mm256_srai_epi32(n, 1), rest = _mm256_sub_epi32(n, half), bias = _mm256_set1_epi32(127);
    __m256 first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    __m256 second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return {_mm256_mul_ps(_mm256_mul_ps(v, first), second)};
  }
  HEADRACE_INLINE float sum() const {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  HEADRACE_INLINE float maxLane() const {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }
  static HEADRACE_INLINE void transpose(Vec256 (&r)[kLanes]) {
    __m256 a[8], b[8];
    HEADRACE_UNROLL
    for (int i = 0; i < 8; i += 2) {
      a[i] = _mm256_unpacklo_ps(r[i].v, r[i + 1].v);
      a[i + 1] = _mm256_unpackhi_ps(r[i].v, r[i + 1].v);
    }
    HEADRACE_UNROLL
    for (int i = 0; i < 8; i += 4) {
      b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
      b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
      b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
      b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    HEADRACE_UNROLL
    for (int i = 0; i < 4; ++i) {
      r[i].v = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
      r[i + 4].v = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
  }

private:
  // All ones in lanes below n.
  static HEADRACE_INLINE __m256i laneMask(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

using VecAvx2 = Vec256<HostIsa::Avx2>;

} // namespace headrace::kernels
