// SPDX-License-Identifier: Apache-2.0
//
// What moves on CUDA without arithmetic: Op::GatherRows, Op::FetchRows, rows to and from activation blocks, and the
// iteration's tokens to the host.
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

// Rows that lie one behind the other in host memory and are to on the device. A read takes a microsecond or two to come
// over the link: 16 bytes a thread of as many blocks as there are such pieces, so that all are under way at once.
__global__ void fetchRowsKernel(const FetchRowsArgs args) {
  const int64_t size = args.activation == Elem::F32 ? 4 : 2, bytes = args.meta->numTokens * args.columns * size;
  const int64_t wide = aligned16(args.x) && aligned16(args.y) ? bytes / 16 : 0; // pieces; the rest by twos
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = first; i < wide; i += step)
    storeGlobal(static_cast<uint4 *>(args.y) + i, loadGlobal(static_cast<const uint4 *>(args.x) + i));
  for (int64_t i = wide * 8 + first; i < bytes / 2; i += step)
    storeGlobal(static_cast<uint16_t *>(args.y) + i, loadGlobal(static_cast<const uint16_t *>(args.x) + i));
}

// A row of `hidden` elements as they are, by all threads of a block; places are in elements.
HEADRACE_DEVICE void copyRow(void *to, int64_t toElement, const void *from, int64_t fromElement, int64_t hidden,
                             Elem elem) {
  const int64_t size = elem == Elem::F32 ? 4 : 2, bytes = hidden * size;
  char *target = static_cast<char *>(to) + toElement * size;
  const char *source = static_cast<const char *>(from) + fromElement * size;
  if (bytes % 16 == 0 && aligned16(target) && aligned16(source))
    for (int64_t i = threadIdx.x; i < bytes / 16; i += blockDim.x)
      reinterpret_cast<uint4 *>(target)[i] = reinterpret_cast<const uint4 *>(source)[i];
  else
    for (int64_t i = threadIdx.x; i < bytes / 2; i += blockDim.x)
      reinterpret_cast<uint16_t *>(target)[i] = reinterpret_cast<const uint16_t *>(source)[i];
}

__global__ void actAppendKernel(const ActAppendArgs args) {
  const int32_t *slots = args.meta->array<int32_t>(args.meta->kvSlot);
  const int64_t count = args.meta->numTokens, first = args.firstAct * args.blockTokens;
  for (int64_t t = blockIdx.x; t < count; t += gridDim.x)
    if (slots[t] >= first)
      copyRow(args.act, (slots[t] - first) * args.hidden, args.x, t * args.hidden, args.hidden, args.activation);
}

__global__ void gatherActKernel(const GatherActArgs args) {
  const int32_t *blocks = args.meta->array<int32_t>(args.meta->actBlock);
  const int64_t left = args.meta->numActRows - args.firstRow, count = left < args.rows ? left : args.rows;
  for (int64_t r = blockIdx.x; r < count; r += gridDim.x) {
    const int64_t row = args.firstRow + r, block = blocks[row / args.blockTokens];
    copyRow(args.x, r * args.hidden, args.act, (block * args.blockTokens + row % args.blockTokens) * args.hidden,
            args.hidden, args.activation);
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
