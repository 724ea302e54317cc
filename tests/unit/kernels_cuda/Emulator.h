// SPDX-License-Identifier: Apache-2.0
//
// Runs the CUDA kernels' own source on the host: the functions of kernels/cuda/CudaPrimitives.cuh for a host compiler,
// on an emulated block of threads. Included before any kernel's header.
//
// Each thread of a block is a fiber. A warp runs until its lanes wait for the block or are done; which warp is next,
// and in which order its lanes run between two exchanges, follows from the launch's order number. So a missing barrier
// shows as a result that differs between orders. Shared memory is NaN at a block's start; an asynchronous copy makes
// its destination NaN at once and takes place when its thread waits for it, as late as it may. Lanes that meet at
// different exchanges, threads that leave others at a barrier, copies never waited for and misaligned addresses end the
// program with a message.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/CudaKernels.h"
#include "kernels/Half.h"
#include "kernels/HostDevice.h"

#define HEADRACE_DEVICE inline
#define HEADRACE_LOOP
#define HEADRACE_LOOP_BY(n)
#define __global__
#define __device__
#define __launch_bounds__(...)

struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct EmulatedIndex {
  uint32_t x, y, z;
};
inline EmulatedIndex threadIdx, blockIdx, blockDim, gridDim; // of the thread that runs

namespace headrace::kernels {

namespace emulator {

struct Grid {
  CudaLaunch launch;
  void (*body)(const void *); // once for each thread
  const void *context;
};
// Runs all blocks of all grids, each block to its end. Blocks of several launches come one grid behind the other for
// orders 0 and 1, mixed for others.
void runGrids(const std::vector<Grid> &grids, uint64_t order);

// What loadGlobal and storeGlobal were asked for since it was last set to nothing.
struct Counts {
  uint64_t bytesLoaded = 0, bytesStored = 0;
  uint64_t threads = 0, active = 0;         // launched; of these, that loaded or stored
  uint64_t blockCopied = 0, mostCopied = 0; // bytes to shared memory by the block that runs, and by the one with most
};
inline Counts counts;
inline std::vector<char> touched; // by each thread of the block that runs

// For a running thread.
unsigned char *shared();
void meetBlock();
// Gives `value` (at most 64 bytes) to the other lanes and gets all 32 of the warp, lane by lane, into `all`.
void exchange(const void *value, uint64_t bytes, void *all);
void copyLater(void *to, const void *from, uint64_t bytes); // zeroes where from is null
void commit();
void wait(int pending);
[[noreturn]] void fail(const char *message);

template <typename T> struct Lanes {
  T values[32];
  explicit Lanes(const T &value) { exchange(&value, sizeof value, values); }
};

inline void requireAligned(const void *p, uint64_t alignment) {
  if (reinterpret_cast<uintptr_t>(p) % alignment != 0)
    fail("misaligned address");
}

} // namespace emulator

inline constexpr bool kPointersInShared = true;

HEADRACE_DEVICE int laneIndex() { return static_cast<int>(threadIdx.x % 32); }
HEADRACE_DEVICE int warpIndex() { return static_cast<int>(threadIdx.x / 32); }

HEADRACE_DEVICE void syncBlock() { emulator::meetBlock(); }
HEADRACE_DEVICE void syncWarp() { emulator::Lanes<char> meet(0); }
template <typename T> HEADRACE_DEVICE T shuffle(T value, int lane) {
  return emulator::Lanes<T>(value).values[lane & 31];
}
template <typename T> HEADRACE_DEVICE T shuffleXor(T value, int mask) {
  return emulator::Lanes<T>(value).values[laneIndex() ^ mask];
}
HEADRACE_DEVICE uint32_t ballot(bool value) {
  const emulator::Lanes<bool> lanes(value);
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i)
    bits |= lanes.values[i] ? 1u << i : 0u;
  return bits;
}
HEADRACE_DEVICE uint32_t bitsOfFloat(float value) { return bitsFromFloat(value); }
HEADRACE_DEVICE float floatOfBits(uint32_t bits) { return floatFromBits(bits); }
HEADRACE_DEVICE int countBits(uint32_t bits) { return __builtin_popcount(bits); }
HEADRACE_DEVICE int firstBit(uint32_t bits) { return __builtin_ffs(static_cast<int>(bits)) - 1; }
HEADRACE_DEVICE unsigned char *sharedMemory() { return emulator::shared(); }

template <typename T> HEADRACE_DEVICE T loadGlobal(const T *p) {
  emulator::requireAligned(p, sizeof(T));
  emulator::counts.bytesLoaded += sizeof(T);
  emulator::touched[threadIdx.x] = 1;
  return *p;
}
template <typename T> HEADRACE_DEVICE void storeGlobal(T *p, const T &value) {
  emulator::requireAligned(p, sizeof(T));
  emulator::counts.bytesStored += sizeof(T);
  emulator::touched[threadIdx.x] = 1;
  *p = value;
}

HEADRACE_DEVICE void fenceDevice() {}
HEADRACE_DEVICE void fenceSystem() {}
HEADRACE_DEVICE uint32_t atomicCountTo(uint32_t *counter, uint32_t last) {
  const uint32_t old = *counter;
  *counter = old >= last ? 0 : old + 1;
  return old;
}
HEADRACE_DEVICE uint32_t atomicAddTo(uint32_t *word, uint32_t value) {
  const uint32_t old = *word;
  *word += value;
  return old;
}
HEADRACE_DEVICE void atomicMinTo(uint32_t *word, uint32_t value) { *word = value < *word ? value : *word; }
HEADRACE_DEVICE void atomicMaxTo(uint32_t *word, uint32_t value) { *word = value > *word ? value : *word; }
HEADRACE_DEVICE void atomicOrTo(uint32_t *word, uint32_t value) { *word |= value; }
template <typename T> HEADRACE_DEVICE T loadShared(const T *p) { return *p; }
HEADRACE_DEVICE void storeVolatile(uint64_t *p, uint64_t value) { *p = value; }

HEADRACE_DEVICE void copyAsync16(void *shared, const void *global, bool valid) {
  emulator::requireAligned(shared, 16);
  emulator::requireAligned(global, 16);
  emulator::copyLater(shared, valid ? global : nullptr, 16);
}
HEADRACE_DEVICE void copyAsync4(void *shared, const void *global, bool valid) {
  emulator::requireAligned(shared, 4);
  emulator::requireAligned(global, 4);
  emulator::copyLater(shared, valid ? global : nullptr, 4);
}
HEADRACE_DEVICE void commitCopies() { emulator::commit(); }
template <int kPending> HEADRACE_DEVICE void waitCopies() { emulator::wait(kPending); }

// Lane i gets, of matrix m, row i / 4, elements i % 4 * 2 and the next; transposed, rows i % 4 * 2 and the next of
// column i / 4.
inline void emulateLoadMatrices(uint32_t (&r)[4], const void *row, bool transposed) {
  emulator::requireAligned(row, 16);
  struct Row {
    uint16_t elements[8];
  } mine;
  std::memcpy(&mine, row, sizeof mine);
  const emulator::Lanes<Row> rows(mine);
  const int lane = laneIndex();
  for (int m = 0; m < 4; ++m) {
    uint16_t pair[2];
    for (int e = 0; e < 2; ++e)
      pair[e] = transposed ? rows.values[m * 8 + lane % 4 * 2 + e].elements[lane / 4]
                           : rows.values[m * 8 + lane / 4].elements[lane % 4 * 2 + e];
    r[m] = pair[0] | static_cast<uint32_t>(pair[1]) << 16;
  }
}
HEADRACE_DEVICE void loadMatrices(uint32_t (&r)[4], const void *row) { emulateLoadMatrices(r, row, false); }
HEADRACE_DEVICE void loadMatricesTransposed(uint32_t (&r)[4], const void *row) { emulateLoadMatrices(r, row, true); }

template <Elem kElem> HEADRACE_DEVICE float widen(uint16_t bits) {
  return kElem == Elem::F16 ? floatFromF16(bits) : floatFromBf16(bits);
}
template <Elem kElem> HEADRACE_DEVICE uint16_t narrow(float value) {
  return kElem == Elem::F16 ? f16FromFloat(value) : bf16FromFloat(value);
}
template <Elem kElem> HEADRACE_DEVICE uint32_t packPair(float first, float second) {
  return narrow<kElem>(first) | static_cast<uint32_t>(narrow<kElem>(second)) << 16;
}

// PTX ISA, "Matrix Fragments for mma.m16n8k16": a's element (row, k) is in lane row % 8 * 4 + k % 8 / 2, register
// row / 8 + k / 8 * 2, half k % 2; b's (k, n) in lane n * 4 + k % 8 / 2, register k / 8, half k % 2; c's (row, n) in
// lane row % 8 * 4 + n / 2, register row / 8 * 2 + n % 2.
template <Elem kElem>
HEADRACE_DEVICE void multiplyTile(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Operands {
    uint32_t a[4], b[2];
  };
  const emulator::Lanes<Operands> lanes({{a[0], a[1], a[2], a[3]}, {b0, b1}});
  for (int i = 0; i < 4; ++i) {
    const int row = laneIndex() / 4 + i / 2 * 8, n = laneIndex() % 4 * 2 + i % 2;
    float sum = 0.0f;
    for (int k = 0; k < 16; ++k) {
      const uint32_t left = lanes.values[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2];
      const uint32_t right = lanes.values[n * 4 + k % 8 / 2].b[k / 8];
      sum += widen<kElem>(static_cast<uint16_t>(left >> (k % 2 * 16))) *
             widen<kElem>(static_cast<uint16_t>(right >> (k % 2 * 16)));
    }
    c[i] += sum;
  }
}

// Compiled without contraction (-ffp-contract=off).
HEADRACE_DEVICE float multiplyRounded(float a, float b) { return a * b; }
HEADRACE_DEVICE float exp2Fast(float x) { return exp2f(x); }

} // namespace headrace::kernels
