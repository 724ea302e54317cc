// SPDX-License-Identifier: Apache-2.0
//
// What moves on CUDA without arithmetic: Op::GatherRows, and the iteration's tokens to the host.
#pragma once

#include "kernels/cuda/CudaElems.cuh"

namespace headrace::kernels {

__global__ void gatherRowsKernel(const GatherRowsArgs args) {
  const int32_t *rows = args.meta->array<int32_t>(args.meta->sampleRow);
  const int64_t hidden = args.hidden, count = args.meta->numSampled;
  const bool vectors = hidden % 4 == 0 && aligned16(args.x) && aligned16(args.y);
  for (int64_t s = blockIdx.x; s < count; s += gridDim.x) {
    const float *x = args.x + rows[s] * hidden;
    float *y = args.y + s * hidden;
    if (vectors)
      for (int64_t i = threadIdx.x; i < hidden / 4; i += blockDim.x)
        reinterpret_cast<float4 *>(y)[i] = reinterpret_cast<const float4 *>(x)[i];
    else
      for (int64_t i = threadIdx.x; i < hidden; i += blockDim.x)
        y[i] = x[i];
  }
}

// One block. Every thread makes its tokens visible to the host, then all meet, then one writes the number.
__global__ void publishKernel(const PublishArgs args) {
  const uint64_t iteration = args.meta->iteration, slot = iteration % kPublishSlots;
  int32_t *tokens = args.tokens + static_cast<int64_t>(slot) * args.maxSequences;
  const int64_t count = static_cast<int64_t>(args.last->firstOutput) + args.last->numSampled;
  for (int64_t s = threadIdx.x; s < count; s += blockDim.x)
    tokens[s] = args.output[s];
  fenceSystem();
  syncBlock();
  if (threadIdx.x == 0) {
    fenceSystem();
    storeVolatile(args.iterations + slot, iteration);
  }
}

} // namespace headrace::kernels
