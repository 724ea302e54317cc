// SPDX-License-Identifier: Apache-2.0
//
// Op::Attention on CUDA for any head size up to kAnyAttentionDim, any element types, F32 among them, and packed caches,
// whose values are unpacked to F32 where they are used: plain and correct rather than fast. Block (row, query head):
// 128 tokens at a time, a warp a token for the scores, a thread a dimension for the sums; the online softmax in F32.
// Steps begin at multiples of 128: a row's bits depend on its own q and tokens only.
#pragma once

#include "kernels/AttentionTiles.h"
#include "kernels/CudaGrid.h"
#include "kernels/cuda/PackedKvCuda.cuh"

namespace headrace::kernels {

// Token t's row of k (plane: its head) or of v (behind kvHeads of these) in a cache of elements.
template <Elem kElem> struct ElementRow {
  int64_t start;
  HEADRACE_DEVICE ElementRow(const AttentionArgs &args, const int32_t *blocks, int64_t plane, int64_t t) {
    const uint32_t token = static_cast<uint32_t>(t), blockTokens = static_cast<uint32_t>(args.blockTokens);
    start =
        args.segments.of(blocks[token / blockTokens]) + (plane * args.blockTokens + token % blockTokens) * args.headDim;
  }
  HEADRACE_DEVICE float value(const void *cache, int64_t d) const { return loadOne<kElem>(cache, start + d); }
};
// And in a packed one.
struct CodeRow : PackedRow {
  HEADRACE_DEVICE CodeRow(const AttentionArgs &args, const int32_t *blocks, int64_t plane, int64_t t)
      : PackedRow(args.kvPacking, PackedKvBlock(args.kvPacking, args.kvHeads, args.blockTokens, args.headDim),
                  args.segments.of(blocks[static_cast<uint32_t>(t) / static_cast<uint32_t>(args.blockTokens)]),
                  plane * args.blockTokens + static_cast<uint32_t>(t) % static_cast<uint32_t>(args.blockTokens)) {}
};

template <Elem kElem, typename Row> __global__ void attentionAnyKernel(const AttentionArgs args) {
  constexpr int kChunk = kAnyAttentionChunk, kThreads = kChunk, kWarps = kThreads / 32;
  constexpr int kPerThread = kAnyAttentionDim / kThreads;
  float *query = reinterpret_cast<float *>(sharedMemory()), *scores = query + kAnyAttentionDim;
  float *scratch = scores + kChunk; // of reductions
  const IterationMeta &meta = *args.meta;
  const int64_t row = blockIdx.x, head = blockIdx.y, headDim = args.headDim;
  if (row >= meta.numTokens)
    return;
  const int64_t kvHead = head / (args.heads / args.kvHeads);
  const int64_t sequence = meta.array<int32_t>(meta.tokenSequence)[row];
  const int32_t *blocks = meta.array<int32_t>(meta.blockTable) + sequence * meta.tableStride;
  const int64_t reach = int64_t{meta.array<int32_t>(meta.positions)[row]} + 1;
  const int thread = static_cast<int>(threadIdx.x);
  for (int64_t d = thread; d < headDim; d += kThreads)
    query[d] = loadOne<kElem>(args.qkv, row * (args.heads + 2 * args.kvHeads) * headDim + head * headDim + d);
  syncBlock();

  float largest = -__builtin_inff(), total = 0.0f, output[kPerThread] = {};
  for (int64_t start = 0; start < reach; start += kChunk) {
    const int tokens = static_cast<int>(reach - start < kChunk ? reach - start : kChunk);
    for (int t = warpIndex(); t < tokens; t += kWarps) {
      const Row key(args, blocks, kvHead, start + t);
      float sum = 0.0f;
      for (int64_t d = laneIndex(); d < headDim; d += 32)
        sum += query[d] * key.value(args.kv, d);
      for (int mask = 16; mask > 0; mask /= 2)
        sum += shuffleXor(sum, mask);
      if (laneIndex() == 0)
        scores[t] = sum * args.scale;
    }
    syncBlock();
    float most = thread < tokens ? scores[thread] : -__builtin_inff();
    for (int mask = 16; mask > 0; mask /= 2)
      most = fmaxf(most, shuffleXor(most, mask));
    if (laneIndex() == 0)
      scratch[warpIndex()] = most;
    syncBlock();
    most = largest;
    for (int w = 0; w < kWarps; ++w)
      most = fmaxf(most, scratch[w]);
    const float shift = most == -__builtin_inff() ? 0.0f : most, correction = expf(largest - shift);
    const float p = thread < tokens ? expf(scores[thread] - shift) : 0.0f;
    syncBlock(); // all have read the scratch
    scores[thread] = p;
    total = total * correction + blockSum(p, scratch); // ends with a barrier: the exponentials are in place
    largest = most;
    for (int i = 0; i < kPerThread; ++i) {
      const int64_t d = thread + i * kThreads;
      if (d >= headDim)
        break;
      float sum = 0.0f;
      for (int t = 0; t < tokens; ++t)
        sum += scores[t] * Row(args, blocks, args.kvHeads + kvHead, start + t).value(args.kv, d);
      output[i] = output[i] * correction + sum;
    }
    syncBlock(); // the scores may be overwritten
  }
  for (int i = 0; i < kPerThread; ++i)
    if (const int64_t d = thread + i * kThreads; d < headDim)
      storeOne<kElem>(args.out, (row * args.heads + head) * headDim + d, output[i] / total);
}

} // namespace headrace::kernels
