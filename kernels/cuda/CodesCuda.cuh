// SPDX-License-Identifier: Apache-2.0
//
// Codes of packed weights and caches to values, on CUDA (docs/encodings.md). The product of a code and its scale is
// exact in F32, so that with a fused multiply-add or two roundings the value has the same bits.
#pragma once

#include "kernels/cuda/CudaElems.cuh"

namespace headrace::kernels {

// Of a group's word in front of its codes: the scale's bits, above them the minimum's.
struct GroupValues {
  float scale, min;

  HEADRACE_DEVICE explicit GroupValues(uint32_t header)
      : scale(widen<Elem::F16>(static_cast<uint16_t>(header))),
        min(widen<Elem::F16>(static_cast<uint16_t>(header >> 16))) {}

  // Below 2^23 a whole number is the last bits of itself and 2^23: two instructions at full rate, where a conversion
  // takes as long as eight.
  HEADRACE_DEVICE float of(uint32_t code) const { return fmaf(floatOfBits(0x4b000000u | code) - 0x1p23f, scale, min); }
  // Codes of a word, from the lowest bits on.
  template <int kBits, int kCount> HEADRACE_DEVICE void of(uint32_t word, float *v) const {
    HEADRACE_LOOP
    for (int j = 0; j < kCount; ++j)
      v[j] = of(word >> kBits * j & ((1u << kBits) - 1));
  }
};

} // namespace headrace::kernels
