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

  // Packed weights are unpacked a part of whole output rows at a time, in front of what the library may use: as much as
  // is likely to be in the second cache still (50 MiB on an H200) when the product reads it.
  static constexpr uint64_t kUnpackedBytes = uint64_t{32} << 20;
  static constexpr int64_t kUnpackedRows =
      128; // at least: columns of y begin at whole tiles, aligned as the library likes
  static constexpr uint64_t unpackedBytes(int64_t n, int64_t k, int64_t elementBytes) {
    const auto row = static_cast<uint64_t>(k * elementBytes), all = static_cast<uint64_t>(n) * row;
    const uint64_t most = kUnpackedBytes > kUnpackedRows * row ? kUnpackedBytes : kUnpackedRows * row;
    return alignUp(all < most ? all : most);
  }
  // Rows of a part, but for the last: as few parts as hold them all, about as large.
  static constexpr int64_t unpackedRows(int64_t n, int64_t k, int64_t elementBytes) {
    const int64_t tiles = static_cast<int64_t>(kUnpackedBytes) / (k * elementBytes) / kUnpackedRows;
    const int64_t most = tiles > 1 ? tiles * kUnpackedRows : kUnpackedRows;
    const int64_t parts = (n + most - 1) / most, even = ((n + parts - 1) / parts + kUnpackedRows - 1) / kUnpackedRows;
    return even * kUnpackedRows < n ? even * kUnpackedRows : n;
  }

  // A few rows of 16 bits are multiplied by packed weights that are unpacked on the way to the tensor cores, without
  // the library and without any workspace.
  static constexpr int64_t kPackedProductRows = 8;
  static constexpr bool unpacksOnTheWay(int64_t rows, int64_t elementBytes) {
    return rows <= kPackedProductRows && elementBytes == 2;
  }
  // Of a product of the library's, and of a linear op; `unpackedElement` bytes, 0 where weights are not packed.
  static constexpr uint64_t productBytes(int64_t n, int64_t k, int64_t unpackedElement) {
    return kLinearBytes + (unpackedElement == 0 ? 0 : unpackedBytes(n, k, unpackedElement));
  }
  static constexpr uint64_t linearBytes(int64_t rows, int64_t n, int64_t k, int64_t unpackedElement) {
    return unpacksOnTheWay(rows, unpackedElement) ? 0 : productBytes(n, k, unpackedElement);
  }

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

  // Keys and values are rebuilt so many rows at a time: gathered activations, what the product makes of them, the
  // product's own workspace, each from a multiple of 256 bytes on.
  static constexpr int64_t kRebuildRows = 4096;
  static constexpr uint64_t rebuildProduct(int64_t rows, int64_t hidden, int64_t activationBytes) {
    return alignUp(static_cast<uint64_t>(rows * hidden * activationBytes));
  }
  static constexpr uint64_t rebuildScratch(int64_t rows, int64_t n, int64_t hidden, int64_t activationBytes) {
    return rebuildProduct(rows, hidden, activationBytes) + alignUp(static_cast<uint64_t>(rows * n * activationBytes));
  }
  static constexpr uint64_t rebuildBytes(int64_t rows, int64_t n, int64_t hidden, int64_t activationBytes,
                                         bool packed) {
    return rebuildScratch(rows, n, hidden, activationBytes) + productBytes(n, hidden, packed ? activationBytes : 0);
  }
  static constexpr uint64_t alignUp(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

  // A copy of each row's logits, which sampling turns into probabilities.
  static constexpr uint64_t sampleBytes(int64_t sequences, int64_t vocab) {
    return static_cast<uint64_t>(sequences * vocab) * sizeof(float);
  }
};

} // namespace headrace::kernels
