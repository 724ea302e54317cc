// SPDX-License-Identifier: Apache-2.0
//
// Op::Norm on CUDA: a block takes rows in turn. Each thread sums four elements at a time, in places that depend on
// `hidden` and the number of threads only; the mean is taken first and the variance from the differences.
#pragma once

#include "kernels/cuda/CudaElems.cuh"

namespace headrace::kernels {

// Elements i .. i + 3 of a row of n, zero past its end.
HEADRACE_DEVICE float4 loadFour(const float *row, int64_t i, int64_t n, bool vectors) {
  if (vectors)
    return *reinterpret_cast<const float4 *>(row + i);
  float4 v{0.0f, 0.0f, 0.0f, 0.0f};
  v.x = row[i];
  if (i + 1 < n)
    v.y = row[i + 1];
  if (i + 2 < n)
    v.z = row[i + 2];
  if (i + 3 < n)
    v.w = row[i + 3];
  return v;
}

template <Elem kElem> __global__ void normKernel(const NormArgs args) {
  float *scratch = reinterpret_cast<float *>(sharedMemory());
  const int64_t n = args.hidden, step = int64_t{4} * blockDim.x, rows = *args.count;
  const bool vectors =
      n % 4 == 0 && aligned16(args.x) && aligned16(args.y) && aligned16(args.weight) && aligned16(args.bias);
  for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
    const float *x = args.x + t * n;
    float mean = 0.0f;
    if (args.bias != nullptr) {
      float sum = 0.0f;
      for (int64_t i = int64_t{4} * threadIdx.x; i < n; i += step) {
        const float4 v = loadFour(x, i, n, vectors);
        sum += (v.x + v.y) + (v.z + v.w);
      }
      mean = blockSum(sum, scratch) / static_cast<float>(n);
    }
    float squares = 0.0f;
    for (int64_t i = int64_t{4} * threadIdx.x; i < n; i += step) {
      const float4 v = loadFour(x, i, n, vectors);
      const float values[4] = {v.x, v.y, v.z, v.w};
      HEADRACE_LOOP
      for (int j = 0; j < 4; ++j) {
        const float d = i + j < n ? values[j] - mean : 0.0f;
        squares += d * d;
      }
    }
    const float meanSquare = blockSum(squares, scratch) / static_cast<float>(n);
    const float factor = 1.0f / sqrtf(meanSquare + args.eps);
    for (int64_t i = int64_t{4} * threadIdx.x; i < n; i += step) {
      const float4 v = loadFour(x, i, n, vectors), w = loadFour(args.weight, i, n, vectors);
      float4 b{0.0f, 0.0f, 0.0f, 0.0f};
      if (args.bias != nullptr)
        b = loadFour(args.bias, i, n, vectors);
      const float y[4] = {(v.x - mean) * factor * w.x + b.x, (v.y - mean) * factor * w.y + b.y,
                          (v.z - mean) * factor * w.z + b.z, (v.w - mean) * factor * w.w + b.w};
      if constexpr (kElem == Elem::F32) {
        for (int j = 0; j < 4 && i + j < n; ++j)
          storeOne<kElem>(args.y, t * n + i + j, y[j]);
      } else if (vectors) { // 8-byte rows: n is a multiple of 4
        *reinterpret_cast<uint2 *>(static_cast<uint16_t *>(args.y) + t * n + i) =
            uint2{packPair<kElem>(y[0], y[1]), packPair<kElem>(y[2], y[3])};
      } else {
        for (int j = 0; j < 4 && i + j < n; ++j)
          storeOne<kElem>(args.y, t * n + i + j, y[j]);
      }
    }
  }
}

} // namespace headrace::kernels
