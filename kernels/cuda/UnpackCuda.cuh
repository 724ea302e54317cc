// SPDX-License-Identifier: Apache-2.0
//
// Packed weights to elements, on CUDA (docs/encodings.md). The product of a code and its scale is exact in F32, so that
// with a fused multiply-add or two roundings the value has the same bits.
#pragma once

#include "kernels/cuda/CudaElems.cuh"

namespace headrace::kernels {

// Codes of a word, from the lowest bits on, as values.
template <int kBits, int kCount> HEADRACE_DEVICE void valuesOf(uint32_t word, float scale, float min, float *v) {
  HEADRACE_LOOP
  for (int j = 0; j < kCount; ++j)
    v[j] = fmaf(static_cast<float>(word >> kBits * j & ((1u << kBits) - 1)), scale, min);
}

// Eight codes of a group whose header (the scale's bits, above them the minimum's) and codes are given.
template <int kBits> HEADRACE_DEVICE void unpackEight(uint32_t header, const uint32_t *codes, float (&v)[8]) {
  const float scale = widen<Elem::F16>(static_cast<uint16_t>(header)),
              min = widen<Elem::F16>(static_cast<uint16_t>(header >> 16));
  if constexpr (kBits == 4) {
    valuesOf<4, 8>(loadGlobal(codes), scale, min, v);
  } else {
    valuesOf<8, 4>(loadGlobal(codes), scale, min, v);
    valuesOf<8, 4>(loadGlobal(codes + 1), scale, min, v + 4);
  }
}

// A matrix' groups lie one behind the other, so rows are no matter; eight elements a thread, which are one group's.
template <Elem kElem, int kBits> HEADRACE_DEVICE void unpackGroups(const UnpackArgs &args) {
  const int shift = args.packing.group == 32 ? 2 : args.packing.group == 64 ? 3 : 4; // eights of a group
  const int64_t words = args.packing.groupBytes() / 4;
  const auto *groups = static_cast<const uint32_t *>(args.w);
  const int64_t eights = args.rows * args.k / 8, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < eights; i += step) {
    const uint32_t *group = groups + (i >> shift) * words;
    float v[8];
    unpackEight<kBits>(loadGlobal(group), group + 1 + (i & ((1 << shift) - 1)) * (kBits / 4), v);
    storeEight<kElem>(args.out, i * 8, v);
  }
}

template <Elem kElem> __global__ void unpackKernel(const UnpackArgs args) {
  args.packing.codeBits == 4 ? unpackGroups<kElem, 4>(args) : unpackGroups<kElem, 8>(args);
}

} // namespace headrace::kernels
