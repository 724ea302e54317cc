// SPDX-License-Identifier: Apache-2.0
//
// Op::RopeAppend on CUDA. A block takes kRopePlanes vectors (heads of q, k or v) of a row; the row's cosines and
// sines are made once a block. k and v go to the cache from their F32 values, so each element is rounded once. The
// angle is position * inverse frequency in F32, as Hugging Face's reference has it.
#pragma once

#include "kernels/CudaGrid.h"
#include "kernels/cuda/CudaElems.cuh"

namespace headrace::kernels {

template <Elem kElem, Elem kKvElem> __global__ void ropeAppendKernel(const RopeAppendArgs args) {
  const int64_t headDim = args.headDim, half = headDim / 2;
  float *cosine = reinterpret_cast<float *>(sharedMemory()), *sine = cosine + half;
  const int32_t *positions = args.meta->array<int32_t>(args.meta->positions);
  const int32_t *slots = args.meta->array<int32_t>(args.meta->kvSlot);
  const int64_t rows = args.meta->numTokens, allPlanes = args.heads + 2 * args.kvHeads;
  const int64_t rotated = args.inverseFrequencies != nullptr ? args.heads + args.kvHeads : 0;
  const int64_t firstPlane = int64_t{blockIdx.y} * kRopePlanes;
  const int64_t planes = allPlanes - firstPlane < kRopePlanes ? allPlanes - firstPlane : kRopePlanes;
  const bool vectors = half % 8 == 0 && headDim % 2 == 0 && aligned16(args.qkv) && aligned16(args.kv);
  for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
    if (firstPlane < rotated) { // the same on every thread
      const float position = static_cast<float>(positions[t]);
      syncBlock(); // the row before has been rotated
      for (int64_t j = threadIdx.x; j < half; j += blockDim.x)
        sincosf(position * args.inverseFrequencies[j], &sine[j], &cosine[j]);
      syncBlock();
    }
    const int64_t block = slots[t] / args.blockTokens, line = slots[t] % args.blockTokens;
    const int64_t planeLength = args.blockTokens * headDim;
    const int64_t cacheStart = block * 2 * args.kvHeads * planeLength + line * headDim;
    // Pairs (j, j + half) of each vector, eight or one at a time; the last element of an odd headDim is a pair of one.
    const int64_t width = vectors ? 8 : 1, pairs = vectors ? half / 8 : headDim - half;
    for (int64_t i = threadIdx.x; i < planes * pairs; i += blockDim.x) {
      const int64_t plane = firstPlane + i / pairs, j = i % pairs * width;
      const int64_t at = (t * allPlanes + plane) * headDim + j;
      const int64_t cache = cacheStart + (plane - args.heads) * planeLength + j;
      if (vectors) {
        float low[8], high[8];
        loadEight<kElem>(args.qkv, at, low);
        loadEight<kElem>(args.qkv, at + half, high);
        if (plane < rotated) {
          HEADRACE_LOOP
          for (int e = 0; e < 8; ++e) {
            const float a = low[e], b = high[e], c = cosine[j + e], s = sine[j + e];
            low[e] = a * c - b * s;
            high[e] = b * c + a * s;
          }
          storeEight<kElem>(args.qkv, at, low);
          storeEight<kElem>(args.qkv, at + half, high);
        }
        if (plane >= args.heads) {
          storeEight<kKvElem>(args.kv, cache, low);
          storeEight<kKvElem>(args.kv, cache + half, high);
        }
        continue;
      }
      const bool paired = j < half;
      float a = loadOne<kElem>(args.qkv, paired ? at : at + half);
      float b = paired ? loadOne<kElem>(args.qkv, at + half) : 0.0f;
      if (plane < rotated && paired) {
        const float low = a * cosine[j] - b * sine[j];
        b = b * cosine[j] + a * sine[j];
        a = low;
        storeOne<kElem>(args.qkv, at, a);
        storeOne<kElem>(args.qkv, at + half, b);
      }
      if (plane >= args.heads) {
        storeOne<kKvElem>(args.kv, paired ? cache : cache + half, a);
        if (paired)
          storeOne<kKvElem>(args.kv, cache + half, b);
      }
    }
  }
}

} // namespace headrace::kernels
