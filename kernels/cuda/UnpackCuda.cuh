// SPDX-License-Identifier: Apache-2.0
//
// Packed weights to elements, on CUDA.
#pragma once

#include "kernels/cuda/CodesCuda.cuh"

namespace headrace::kernels {

// Eight codes of a group, which begin at a word.
template <int kBits> HEADRACE_DEVICE void unpackEight(const GroupValues &group, const uint32_t *codes, float (&v)[8]) {
  if constexpr (kBits == 4) {
    group.of<4, 8>(loadGlobal(codes), v);
  } else {
    group.of<8, 4>(loadGlobal(codes), v);
    group.of<8, 4>(loadGlobal(codes + 1), v + 4);
  }
}

HEADRACE_DEVICE int groupShift(const Packing &of) { return of.group == 32 ? 5 : of.group == 64 ? 6 : 7; }

// A matrix' groups lie one behind the other, so rows are no matter; eight elements a thread, which are one group's.
template <Elem kElem, int kBits> HEADRACE_DEVICE void unpackGroups(const UnpackArgs &args) {
  const int shift = groupShift(args.packing) - 3; // of a group's eights
  const int64_t words = args.packing.groupBytes() / 4;
  const auto *groups = static_cast<const uint32_t *>(args.w);
  const int64_t eights = args.rows * args.k / 8, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < eights; i += step) {
    const uint32_t *group = groups + (i >> shift) * words;
    float v[8];
    unpackEight<kBits>(GroupValues(loadGlobal(group)), group + 1 + (i & ((1 << shift) - 1)) * (kBits / 4), v);
    storeEight<kElem>(args.out, i * 8, v);
  }
}

template <Elem kElem> __global__ void unpackKernel(const UnpackArgs args) {
  if (args.packing.codeBits == 4)
    unpackGroups<kElem, 4>(args);
  else
    unpackGroups<kElem, 8>(args);
}

} // namespace headrace::kernels
