// SPDX-License-Identifier: Apache-2.0
//
// Op::Linear on CUDA for a few rows and packed weights, which are unpacked on the way to the tensor cores: to the
// operands that unpackKernel would have written, so that only the order of sums is another one than the library's.
//
// A block makes 16 columns of y, the 16 rows of the left operand's tile; x is the right one, its 8 columns rows of x.
// Its warps take turns with 64 columns of W. The tile's order along k is free as long as both operands have the same:
// lane % 4 has 16 consecutive columns, four in each of four steps of the tensor cores, so that it reads its codes and
// its x as they lie. The warps' sums are added in their order. A row's bits depend on its own x alone.
//
//   columns of W  0 .. 15   16 .. 31   32 .. 47   48 .. 63      step s: columns 4 s .. 4 s + 3 of each lane's
//   lane % 4         0          1          2          3
#pragma once

#include "kernels/CudaGrid.h"
#include "kernels/cuda/ActivateCuda.cuh"
#include "kernels/cuda/UnpackCuda.cuh"

namespace headrace::kernels {

template <Elem kElem, int kBits> struct PackedProduct {
  static constexpr int kTile = kPackedProductColumns, kWarps = kPackedProductWarps, kStep = 64, kMine = 16;
  static constexpr int kWords = kMine * kBits / 32; // of a lane's codes

  const LinearArgs &args;
  const int64_t firstColumn, rowWords; // of y; of a row of W

  HEADRACE_DEVICE explicit PackedProduct(const LinearArgs &a)
      : args(a), firstColumn(int64_t{blockIdx.x} * kTile), rowWords(a.packing.bytes(a.k) / 4) {}

  HEADRACE_DEVICE void run() const {
    const int64_t rows = *args.count < args.capacity ? *args.count : args.capacity;
    if (rows <= 0)
      return;
    const int row = laneIndex() / 4; // of W's tile, and the one of x
    float sums[4] = {};
    HEADRACE_LOOP_BY(2)
    for (int64_t first = warpIndex() * kStep; first < args.k; first += kWarps * kStep) {
      const int64_t k = first + laneIndex() % 4 * kMine;
      uint32_t low[kMine / 2], high[kMine / 2], x[kMine / 2]; // two elements a word
      unpack(firstColumn + row, k, low);
      unpack(firstColumn + row + 8, k, high);
      loadRow(row, k, row < rows && k < args.k, x);
      HEADRACE_LOOP
      for (int s = 0; s < kMine / 4; ++s) {
        const uint32_t w[4] = {low[2 * s], high[2 * s], low[2 * s + 1], high[2 * s + 1]};
        multiplyTile<kElem>(sums, w, x[2 * s], x[2 * s + 1]);
      }
    }
    join(sums, rows);
  }

private:
  // Sixteen of row `n` of W from column k on, which are one group's; zeroes behind the last column.
  HEADRACE_DEVICE void unpack(int64_t n, int64_t k, uint32_t (&out)[kMine / 2]) const {
    if (k >= args.k) {
      HEADRACE_LOOP
      for (int i = 0; i < kMine / 2; ++i)
        out[i] = 0;
      return;
    }
    const int shift = groupShift(args.packing); // of a group's columns
    const auto inGroup = static_cast<int>(k & ((1 << shift) - 1));
    const uint32_t *group =
        static_cast<const uint32_t *>(args.w) + n * rowWords + (k >> shift) * (args.packing.groupBytes() / 4);
    const GroupValues values(loadGlobal(group));
    const uint32_t *codes = group + 1 + inGroup * kBits / 32;
    HEADRACE_LOOP
    for (int i = 0; i < 2; ++i) {
      float v[8];
      unpackEight<kBits>(values, codes + i * (kWords / 2), v);
      HEADRACE_LOOP
      for (int j = 0; j < 4; ++j)
        out[i * 4 + j] = packPair<kElem>(v[2 * j], v[2 * j + 1]);
    }
  }

  HEADRACE_DEVICE void loadRow(int64_t row, int64_t k, bool there, uint32_t (&out)[kMine / 2]) const {
    const auto *from = reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(args.x) + row * args.k + k);
    HEADRACE_LOOP
    for (int i = 0; i < 2; ++i) {
      const uint4 eight = there ? loadGlobal(from + i) : uint4{0, 0, 0, 0};
      out[4 * i] = eight.x, out[4 * i + 1] = eight.y, out[4 * i + 2] = eight.z, out[4 * i + 3] = eight.w;
    }
  }

  // Sums [warp][row of x][column of y] in shared memory; then a thread a sum.
  HEADRACE_DEVICE void join(const float (&sums)[4], int64_t rows) const {
    float *parts = reinterpret_cast<float *>(sharedMemory());
    const int column = laneIndex() / 4, row = laneIndex() % 4 * 2;
    HEADRACE_LOOP
    for (int i = 0; i < 4; ++i)
      parts[(warpIndex() * 8 + row + i % 2) * kTile + column + i / 2 * 8] = sums[i];
    syncBlock();
    const int64_t t = threadIdx.x / kTile, n = firstColumn + threadIdx.x % kTile;
    if (t >= rows || n >= args.n)
      return;
    float sum = 0.0f;
    HEADRACE_LOOP
    for (int w = 0; w < kWarps; ++w)
      sum += parts[w * 8 * kTile + static_cast<int>(threadIdx.x)];
    const int64_t at = t * args.n + n;
    const bool toF32 = args.result == Elem::F32;
    if (args.bias != nullptr)
      sum += toF32 ? loadOne<Elem::F32>(args.bias, n) : loadOne<kElem>(args.bias, n);
    sum = epilogueOf(args.epilogue, sum);
    if (args.residual != nullptr)
      sum += loadGlobal(args.residual + at);
    if (toF32)
      storeOne<Elem::F32>(args.y, at, sum);
    else
      storeOne<kElem>(args.y, at, sum);
  }
};

template <Elem kElem, int kBits>
__global__ void __launch_bounds__(kPackedProductWarps * 32) packedProductKernel(const LinearArgs args) {
  PackedProduct<kElem, kBits>(args).run();
}

} // namespace headrace::kernels
