// SPDX-License-Identifier: Apache-2.0
//
// Reading and writing arrays of any element type in the CUDA kernels: one element, or eight with 16-byte accesses.
#pragma once

#include "kernels/cuda/CudaPrimitives.cuh"

namespace headrace::kernels {

template <Elem kElem> struct StorageOf { using Type = uint16_t; };
template <> struct StorageOf<Elem::F32> { using Type = float; };

template <Elem kElem> HEADRACE_DEVICE float loadOne(const void *base, int64_t i) {
  const auto value = loadGlobal(static_cast<const typename StorageOf<kElem>::Type *>(base) + i);
  if constexpr (kElem == Elem::F32)
    return value;
  else
    return widen<kElem>(value);
}
template <Elem kElem> HEADRACE_DEVICE void storeOne(void *base, int64_t i, float value) {
  auto *out = static_cast<typename StorageOf<kElem>::Type *>(base) + i;
  if constexpr (kElem == Elem::F32)
    storeGlobal(out, value);
  else
    storeGlobal(out, narrow<kElem>(value));
}

// Elements i .. i + 7, whose address is a multiple of 16.
template <Elem kElem> HEADRACE_DEVICE void loadEight(const void *base, int64_t i, float (&v)[8]) {
  if constexpr (kElem == Elem::F32) {
    const float4 *p = reinterpret_cast<const float4 *>(static_cast<const float *>(base) + i);
    const float4 a = loadGlobal(p), b = loadGlobal(p + 1);
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  } else {
    const uint4 p = loadGlobal(reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(base) + i));
    const uint32_t words[4] = {p.x, p.y, p.z, p.w};
    HEADRACE_LOOP
    for (int j = 0; j < 4; ++j) {
      v[2 * j] = widen<kElem>(static_cast<uint16_t>(words[j]));
      v[2 * j + 1] = widen<kElem>(static_cast<uint16_t>(words[j] >> 16));
    }
  }
}
template <Elem kElem> HEADRACE_DEVICE void storeEight(void *base, int64_t i, const float (&v)[8]) {
  if constexpr (kElem == Elem::F32) {
    float4 *p = reinterpret_cast<float4 *>(static_cast<float *>(base) + i);
    storeGlobal(p, float4{v[0], v[1], v[2], v[3]});
    storeGlobal(p + 1, float4{v[4], v[5], v[6], v[7]});
  } else {
    storeGlobal(reinterpret_cast<uint4 *>(static_cast<uint16_t *>(base) + i),
                uint4{packPair<kElem>(v[0], v[1]), packPair<kElem>(v[2], v[3]), packPair<kElem>(v[4], v[5]),
                      packPair<kElem>(v[6], v[7])});
  }
}

HEADRACE_DEVICE bool aligned16(const void *p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Sum over the block, the same on every thread, in an order that depends on the number of threads only. `scratch`: 32
// floats of shared memory.
HEADRACE_DEVICE float blockSum(float value, float *scratch) {
  HEADRACE_LOOP
  for (int mask = 16; mask > 0; mask /= 2)
    value += shuffleXor(value, mask);
  if (laneIndex() == 0)
    scratch[warpIndex()] = value;
  syncBlock();
  const int warps = static_cast<int>(blockDim.x / 32);
  value = laneIndex() < warps ? scratch[laneIndex()] : 0.0f;
  HEADRACE_LOOP
  for (int mask = 16; mask > 0; mask /= 2)
    value += shuffleXor(value, mask);
  syncBlock(); // the scratch may be used again
  return value;
}

} // namespace headrace::kernels
