// SPDX-License-Identifier: Apache-2.0
//
// Op::Embed on CUDA: a block takes rows in turn, eight elements a thread. The table may be host memory that is mapped
// into the device: each byte of a row is read once, by neighbouring threads. Op::KeepIds: a token a thread.
#pragma once

#include "kernels/TokenIds.h"
#include "kernels/cuda/CudaElems.cuh"

namespace headrace::kernels {

template <Elem kElem> __global__ void embedKernel(const EmbedArgs args) {
  const int32_t *positions = args.meta->array<int32_t>(args.meta->positions);
  const int64_t hidden = args.hidden, rows = args.meta->numTokens;
  const bool vectors = hidden % 8 == 0 && args.order == Order::RowMajor && aligned16(args.table) &&
                       aligned16(args.positions) && aligned16(args.x);
  for (int64_t t = blockIdx.x; t < rows; t += gridDim.x) {
    const int32_t id = tokenOf(*args.meta, args.sampled, t);
    if (args.history != nullptr && threadIdx.x == 0)
      keepId(*args.meta, args.history, t, id);
    const int64_t token = id;
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

__global__ void keepIdsKernel(const KeepIdsArgs args) {
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t t = first; t < args.meta->numTokens; t += step)
    keepId(*args.meta, args.history, t, tokenOf(*args.meta, args.sampled, t));
}

} // namespace headrace::kernels
