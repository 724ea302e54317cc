// SPDX-License-Identifier: Apache-2.0
//
// Eight F32 lanes in plain C++ (compiler vector extensions, no instruction set assumed). VecAvx2.h has the same
// members; the ops are templates over one of the two. Both do the same operations in the same order; the only
// difference is that here fma rounds the product too, so results agree within rounding, not bit for bit.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/Half.h"

#if defined(__clang__)
#define HEADRACE_UNROLL _Pragma("unroll")
#else
#define HEADRACE_UNROLL _Pragma("GCC unroll 32")
#endif
#define HEADRACE_INLINE inline __attribute__((always_inline))
#define HEADRACE_INLINE_LAMBDA __attribute__((always_inline))

namespace headrace::kernels {

struct VecPortable {
  static constexpr int kLanes = 8;
  typedef float F4 __attribute__((vector_size(16)));
  typedef int32_t I4 __attribute__((vector_size(16)));
  F4 lo, hi;

  static HEADRACE_INLINE VecPortable zero() { return {F4{}, F4{}}; }
  static HEADRACE_INLINE VecPortable set(float v) { return {F4{v, v, v, v}, F4{v, v, v, v}}; }
  static HEADRACE_INLINE VecPortable load(const float *p) {
    VecPortable v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  // Lanes n and above are zero.
  static HEADRACE_INLINE VecPortable loadPartial(const float *p, int64_t n) {
    VecPortable v = zero();
    std::memcpy(&v, p, static_cast<size_t>(n) * sizeof(float));
    return v;
  }
  HEADRACE_INLINE void store(float *p) const { std::memcpy(p, this, sizeof *this); }
  HEADRACE_INLINE void storePartial(float *p, int64_t n) const {
    std::memcpy(p, this, static_cast<size_t>(n) * sizeof(float));
  }

  static HEADRACE_INLINE VecPortable loadF16(const uint16_t *p) {
    float t[kLanes];
    for (int i = 0; i < kLanes; ++i)
      t[i] = floatFromF16(p[i]);
    return load(t);
  }
  static HEADRACE_INLINE float fromF16(uint16_t half) { return floatFromF16(half); }
  // Eight bytes as numbers; the lower halves of eight bytes, and the upper ones.
  static HEADRACE_INLINE VecPortable loadBytes(const uint8_t *p) {
    float t[kLanes];
    for (int i = 0; i < kLanes; ++i)
      t[i] = static_cast<float>(p[i]);
    return load(t);
  }
  static HEADRACE_INLINE void loadNibbles(const uint8_t *p, VecPortable &low, VecPortable &high) {
    float l[kLanes], h[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      l[i] = static_cast<float>(p[i] & 15);
      h[i] = static_cast<float>(p[i] >> 4);
    }
    low = load(l), high = load(h);
  }
  HEADRACE_INLINE void storeF16(uint16_t *p) const {
    float t[kLanes];
    store(t);
    for (int i = 0; i < kLanes; ++i)
      p[i] = f16FromFloat(t[i]);
  }
  static HEADRACE_INLINE VecPortable loadBf16(const uint16_t *p) {
    float t[kLanes];
    for (int i = 0; i < kLanes; ++i)
      t[i] = floatFromBf16(p[i]);
    return load(t);
  }
  HEADRACE_INLINE void storeBf16(uint16_t *p) const {
    float t[kLanes];
    store(t);
    for (int i = 0; i < kLanes; ++i)
      p[i] = bf16FromFloat(t[i]);
  }
  // Sixteen BF16 values as their eight even and eight odd ones; joinEvenOdd puts accumulators back in order.
  static HEADRACE_INLINE void loadBf16EvenOdd(const uint16_t *p, VecPortable &even, VecPortable &odd) {
    I4 a, b;
    std::memcpy(&a, p, sizeof a);
    std::memcpy(&b, p + 8, sizeof b);
    const I4 mask = {-65536, -65536, -65536, -65536};
    even = {(F4)(a << 16), (F4)(b << 16)};
    odd = {(F4)(a & mask), (F4)(b & mask)};
  }
  static HEADRACE_INLINE void joinEvenOdd(VecPortable &even, VecPortable &odd) {
    float e[kLanes], o[kLanes], t[2 * kLanes];
    even.store(e);
    odd.store(o);
    for (int i = 0; i < kLanes; ++i)
      t[2 * i] = e[i], t[2 * i + 1] = o[i];
    even = load(t);
    odd = load(t + kLanes);
  }

  friend HEADRACE_INLINE VecPortable operator+(VecPortable a, VecPortable b) { return {a.lo + b.lo, a.hi + b.hi}; }
  friend HEADRACE_INLINE VecPortable operator-(VecPortable a, VecPortable b) { return {a.lo - b.lo, a.hi - b.hi}; }
  friend HEADRACE_INLINE VecPortable operator*(VecPortable a, VecPortable b) { return {a.lo * b.lo, a.hi * b.hi}; }
  friend HEADRACE_INLINE VecPortable operator/(VecPortable a, VecPortable b) { return {a.lo / b.lo, a.hi / b.hi}; }
  // a * b + c
  static HEADRACE_INLINE VecPortable fma(VecPortable a, VecPortable b, VecPortable c) { return a * b + c; }
  // a > b ? a : b, so b where either is NaN.
  static HEADRACE_INLINE VecPortable max(VecPortable a, VecPortable b) {
    return {a.lo > b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
  }
  static HEADRACE_INLINE VecPortable min(VecPortable a, VecPortable b) {
    return {a.lo < b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
  }
  // Lanes below n from `value`, the others from `other`.
  static HEADRACE_INLINE VecPortable firstLanes(VecPortable value, VecPortable other, int64_t n) {
    float v[kLanes], o[kLanes];
    value.store(v);
    other.store(o);
    for (int i = 0; i < kLanes; ++i)
      v[i] = i < n ? v[i] : o[i];
    return load(v);
  }
  // this * 2^n, where biased = n + 1.5 * 2^23 and |n| <= 160; in two steps, so that subnormal results are right.
  HEADRACE_INLINE VecPortable scaleByPowerOf2(VecPortable biased) const {
    return {scale4(lo, biased.lo), scale4(hi, biased.hi)};
  }
  HEADRACE_INLINE float sum() const {
    F4 s = lo + hi; // (0+4) (1+5) (2+6) (3+7)
    return (s[0] + s[2]) + (s[1] + s[3]);
  }
  // NaN lanes: the result is some lane's value or NaN, the same for the same lanes.
  HEADRACE_INLINE float maxLane() const {
    F4 m = lo > hi ? lo : hi;
    float a = m[0] > m[2] ? m[0] : m[2], b = m[1] > m[3] ? m[1] : m[3];
    return a > b ? a : b;
  }
  static HEADRACE_INLINE void transpose(VecPortable (&r)[kLanes]) {
    float in[kLanes][kLanes], out[kLanes][kLanes];
    for (int i = 0; i < kLanes; ++i)
      r[i].store(in[i]);
    for (int i = 0; i < kLanes; ++i)
      for (int j = 0; j < kLanes; ++j)
        out[j][i] = in[i][j];
    for (int i = 0; i < kLanes; ++i)
      r[i] = load(out[i]);
  }

private:
  static HEADRACE_INLINE F4 scale4(F4 p, F4 biased) {
    const I4 magic = {0x4b400000, 0x4b400000, 0x4b400000, 0x4b400000}, bias = {127, 127, 127, 127};
    I4 n = (I4)biased - magic, half = n >> 1;
    return p * (F4)((half + bias) << 23) * (F4)((n - half + bias) << 23);
  }
};

} // namespace headrace::kernels
