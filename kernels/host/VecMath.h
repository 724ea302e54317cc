// SPDX-License-Identifier: Apache-2.0
//
// Functions of eight lanes, for both lane types (VecPortable, VecAvx2).
#pragma once

#include "kernels/Kernels.h"
#include "kernels/host/VecPortable.h"

namespace headrace::kernels {

// e^x, within 2 ulp over the whole range; 0 and infinity outside it, subnormal results included, NaN stays NaN.
// x = n ln 2 + r, |r| <= ln 2 / 2; e^r by the polynomial of Cephes' expf (Moshier); ln 2 in two parts.
template <typename V> HEADRACE_INLINE V exp(V x) {
  const V shift = V::set(12582912.0f); // 1.5 * 2^23: adding it rounds to an integer, kept in the low mantissa bits
  x = V::max(V::set(-105.0f), V::min(V::set(89.0f), x)); // NaN is the second operand, which both return
  V biased = V::fma(x, V::set(1.44269504088896341f), shift);
  V n = biased - shift;
  V r = V::fma(n, V::set(-0.693359375f), x);
  r = V::fma(n, V::set(2.12194440e-4f), r);
  V p = V::set(1.9875691500e-4f);
  p = V::fma(p, r, V::set(1.3981999507e-3f));
  p = V::fma(p, r, V::set(8.3334519073e-3f));
  p = V::fma(p, r, V::set(4.1665795894e-2f));
  p = V::fma(p, r, V::set(1.6666665459e-1f));
  p = V::fma(p, r, V::set(5.0000001201e-1f));
  p = V::fma(p, r * r, r) + V::set(1.0f);
  return p.scaleByPowerOf2(biased);
}

// x / (1 + e^-x)
template <typename V> HEADRACE_INLINE V silu(V x) { return x / (V::set(1.0f) + exp(V::zero() - x)); }

// Eight elements from index i of an array of `elem`.
template <typename V> HEADRACE_INLINE V loadElems(const void *base, int64_t i, Elem elem) {
  switch (elem) {
  case Elem::F32:
    return V::load(static_cast<const float *>(base) + i);
  case Elem::F16:
    return V::loadF16(static_cast<const uint16_t *>(base) + i);
  case Elem::BF16:
    break;
  }
  return V::loadBf16(static_cast<const uint16_t *>(base) + i);
}

// The same, rounded.
template <typename V> HEADRACE_INLINE void storeElems(V value, void *base, int64_t i, Elem elem) {
  switch (elem) {
  case Elem::F32:
    return value.store(static_cast<float *>(base) + i);
  case Elem::F16:
    return value.storeF16(static_cast<uint16_t *>(base) + i);
  case Elem::BF16:
    break;
  }
  value.storeBf16(static_cast<uint16_t *>(base) + i);
}

static inline float loadElem(const void *base, int64_t i, Elem elem) {
  switch (elem) {
  case Elem::F32:
    return static_cast<const float *>(base)[i];
  case Elem::F16:
    return floatFromF16(static_cast<const uint16_t *>(base)[i]);
  case Elem::BF16:
    break;
  }
  return floatFromBf16(static_cast<const uint16_t *>(base)[i]);
}

static inline int64_t elemBytes(Elem elem) { return elem == Elem::F32 ? 4 : 2; }

} // namespace headrace::kernels
