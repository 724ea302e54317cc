// SPDX-License-Identifier: Apache-2.0
//
// Scratch memory of the CUDA kernels: plain arithmetic, so that plans for a GPU are made and verified without one.
#pragma once

#include <cstdint>

#include "kernels/HostDevice.h"

namespace headrace::kernels {

struct CudaWorkspace {
  // Every matrix product may use this much: what cuBLAS asks for on Hopper and Blackwell.
  static constexpr uint64_t kLinearBytes = uint64_t{32} << 20;

  // Decode attention is split along the context at fixed positions, whatever the batch and the bucket; each split
  // leaves headDim sums, a maximum and a sum of exponentials in F32.
  static constexpr int64_t kSplitTokens = 512;
  HEADRACE_HD static constexpr int64_t splits(int64_t maxContext) {
    return (maxContext + kSplitTokens - 1) / kSplitTokens;
  }
  // Blocks of one (row, key head, tile of heads) count their arrivals in a word each: so many of a plan, zeroed when it
  // is opened.
  static constexpr int64_t kArrivals = 1 << 16;
  static constexpr uint64_t attentionBytes(int64_t sequences, int64_t heads, int64_t headDim, int64_t maxContext) {
    return static_cast<uint64_t>(sequences * heads * splits(maxContext) * (headDim + 2)) * sizeof(float);
  }

  // Keys and values are recomputed so many rows at a time: gathered activations, what the product makes of them, the
  // product's own scratch, each from a multiple of 256 bytes on.
  static constexpr int64_t kRecomputeRows = 4096;
  static constexpr uint64_t recomputeProduct(int64_t rows, int64_t hidden, int64_t activationBytes) {
    return alignUp(static_cast<uint64_t>(rows * hidden * activationBytes));
  }
  static constexpr uint64_t recomputeScratch(int64_t rows, int64_t n, int64_t hidden, int64_t activationBytes) {
    return recomputeProduct(rows, hidden, activationBytes) + alignUp(static_cast<uint64_t>(rows * n * activationBytes));
  }
  static constexpr uint64_t recomputeBytes(int64_t rows, int64_t n, int64_t hidden, int64_t activationBytes) {
    return recomputeScratch(rows, n, hidden, activationBytes) + kLinearBytes;
  }
  static constexpr uint64_t alignUp(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

  // A copy of each row's logits, which sampling turns into probabilities.
  static constexpr uint64_t sampleBytes(int64_t sequences, int64_t vocab) {
    return static_cast<uint64_t>(sequences * vocab) * sizeof(float);
  }
};

} // namespace headrace::kernels
