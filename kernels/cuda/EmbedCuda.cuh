// SPDX-License-Identifier: Apache-2.0
//
// Op::Embed on CUDA: a block takes rows in turn, eight elements a thread. The table may be host memory that is mapped
// into the device: each byte of a row is read once, by neighbouring threads.
#pragma once

#include "kernels/cuda/CudaElems.cuh"

namespace headrace::kernels {

template <Elem kElem> __global__ void embedKernel(const EmbedArgs args) {
  const int32_t *tokenIds = args.meta->array<int32_t>(args.meta->tokenIds);
  const int32_t *positions = args.meta->array<int32_t>(args.meta->positions);
  const int32_t *slots = args.meta->array<int32_t>(args.meta->kvSlot);
  const int64_t hidden = args.hidden, rows = args.meta->numTokens;
  const bool vectors = hidden % 8 == 0 && args.order == Order::RowMajor && aligned16(args.table) &&
                       aligned16(args.positions) && aligned16(args.x);
  for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
    int64_t token = tokenIds[t];
    if (token < 0)
      token = args.sampled[-1 - token];
    if (args.history != nullptr && threadIdx.x == 0)
      args.history[slots[t]] = static_cast<int32_t>(token);
    const int64_t from = token * hidden, to = t * hidden, place = (positions[t] + args.positionOffset) * hidden;
    if (vectors) {
      for (int64_t i = int64_t{8} * threadIdx.x; i < hidden; i += int64_t{8} * blockDim.x) {
        float v[8];
        loadEight<kElem>(args.table, from + i, v);
        if (args.positions != nullptr) {
          float p[8];
          loadEight<kElem>(args.positions, place + i, p);
          HEADRACE_LOOP
          for (int j = 0; j < 8; ++j)
            v[j] += p[j];
        }
        storeEight<Elem::F32>(args.x, to + i, v);
      }
      continue;
    }
    for (int64_t i = threadIdx.x; i < hidden; i += blockDim.x) {
      const int64_t at = args.order == Order::Panel16 ? (token / 16 * hidden + i) * 16 + token % 16 : from + i;
      float v = loadOne<kElem>(args.table, at);
      if (args.positions != nullptr)
        v += loadOne<kElem>(args.positions, place + i);
      args.x[to + i] = v;
    }
  }
}

} // namespace headrace::kernels
