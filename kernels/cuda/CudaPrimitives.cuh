// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA kernels use of the machine beside plain C++: barriers, exchange within a warp, asynchronous copies to
// shared memory, tensor cores, 16-bit conversions. Here for nvcc; tests/unit/kernels_cuda/Emulator.h has the same
// functions for a host compiler, so that the kernels' own source also runs, slowly, where no GPU is.
//
// Rules that keep both meanings the same: blocks are one-dimensional with whole warps; every exchange within a warp is
// done by all of its 32 lanes; shared memory is the launch's dynamic block only.
#pragma once

#include "kernels/CudaKernels.h"
#include "kernels/HostDevice.h"

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define HEADRACE_DEVICE __device__ __forceinline__
#define HEADRACE_LOOP _Pragma("unroll")
#define HEADRACE_LOOP_BY(n) HEADRACE_PRAGMA(unroll n)
#define HEADRACE_PRAGMA(text) _Pragma(#text)

namespace headrace::kernels {

// Where all 255 registers are taken, nvcc 13 spills a pointer that is kept in one on some architectures, and on others
// what it makes of one that is kept in shared memory (scripts/check-spills).
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 1200)
inline constexpr bool kPointersInShared = true;
#else
inline constexpr bool kPointersInShared = false;
#endif

HEADRACE_DEVICE int laneIndex() { return static_cast<int>(threadIdx.x % 32); }
HEADRACE_DEVICE int warpIndex() { return static_cast<int>(threadIdx.x / 32); }

HEADRACE_DEVICE void syncBlock() { __syncthreads(); }
HEADRACE_DEVICE void syncWarp() { __syncwarp(); }
template <typename T> HEADRACE_DEVICE T shuffle(T value, int lane) { return __shfl_sync(0xffffffffu, value, lane); }
template <typename T> HEADRACE_DEVICE T shuffleXor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
HEADRACE_DEVICE uint32_t ballot(bool value) { return __ballot_sync(0xffffffffu, value); }

HEADRACE_DEVICE unsigned char *sharedMemory() {
  extern __shared__ __align__(128) unsigned char headraceShared[];
  return headraceShared;
}

HEADRACE_DEVICE uint32_t bitsOfFloat(float value) { return __float_as_uint(value); }
HEADRACE_DEVICE float floatOfBits(uint32_t bits) { return __uint_as_float(bits); }
HEADRACE_DEVICE int countBits(uint32_t bits) { return __popc(bits); }
HEADRACE_DEVICE int firstBit(uint32_t bits) { return __ffs(static_cast<int>(bits)) - 1; }

// ---- global memory: of accesses made so the emulator counts bytes and threads

template <typename T> HEADRACE_DEVICE T loadGlobal(const T *p) { return *p; }
template <typename T> HEADRACE_DEVICE void storeGlobal(T *p, const T &value) { *p = value; }

// ---- memory order between blocks, and with the host

HEADRACE_DEVICE void fenceDevice() { __threadfence(); }
HEADRACE_DEVICE void fenceSystem() { __threadfence_system(); }
// Adds one; at `last` it goes back to zero. Returns what was there.
HEADRACE_DEVICE uint32_t atomicCountTo(uint32_t *counter, uint32_t last) { return atomicInc(counter, last); }
// Returns what was there.
HEADRACE_DEVICE uint32_t atomicAddTo(uint32_t *word, uint32_t value) { return atomicAdd(word, value); }
HEADRACE_DEVICE void atomicMinTo(uint32_t *word, uint32_t value) { atomicMin(word, value); }
HEADRACE_DEVICE void atomicMaxTo(uint32_t *word, uint32_t value) { atomicMax(word, value); }
HEADRACE_DEVICE void atomicOrTo(uint32_t *word, uint32_t value) { atomicOr(word, value); }
// From L2: what another block wrote.
HEADRACE_DEVICE float loadShared(const float *p) { return __ldcg(p); }
HEADRACE_DEVICE float4 loadShared(const float4 *p) { return __ldcg(p); }
HEADRACE_DEVICE void storeVolatile(uint64_t *p, uint64_t value) { *static_cast<volatile uint64_t *>(p) = value; }

// ---- asynchronous copies from global to shared memory

// Zeroes instead of the source's bytes where it is not valid (the address must be readable all the same).
HEADRACE_DEVICE void copyAsync16(void *shared, const void *global, bool valid) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
      "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
      : "memory");
}
// The same of 4 bytes.
HEADRACE_DEVICE void copyAsync4(void *shared, const void *global, bool valid) {
  asm volatile(
      "cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared))),
      "l"(__cvta_generic_to_global(global)), "r"(valid ? 4 : 0)
      : "memory");
}
HEADRACE_DEVICE void commitCopies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Waits until at most kPending of this thread's groups are under way.
template <int kPending> HEADRACE_DEVICE void waitCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// ---- tensor cores (PTX ISA: fragments of mma.m16n8k16)

// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
HEADRACE_DEVICE void loadMatrices(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
HEADRACE_DEVICE void loadMatricesTransposed(uint32_t (&r)[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
// c += a b: a is 16 x 16, b 16 x 8, sums in F32.
template <Elem kElem>
HEADRACE_DEVICE void multiplyTile(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kElem == Elem::F16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A product that is rounded before anything is added to it: never fused.
HEADRACE_DEVICE float multiplyRounded(float a, float b) { return __fmul_rn(a, b); }

// 2^x, within 2 ulp; 0 for minus infinity.
HEADRACE_DEVICE float exp2Fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- 16-bit elements, two to a word, the first in the low half

template <Elem kElem> HEADRACE_DEVICE uint32_t packPair(float first, float second) {
  if constexpr (kElem == Elem::F16) {
    const __half2 pair = __floats2half2_rn(first, second);
    return *reinterpret_cast<const uint32_t *>(&pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const uint32_t *>(&pair);
  }
}
template <Elem kElem> HEADRACE_DEVICE float widen(uint16_t bits) {
  if constexpr (kElem == Elem::F16)
    return __half2float(__ushort_as_half(bits));
  else
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
template <Elem kElem> HEADRACE_DEVICE uint16_t narrow(float value) {
  if constexpr (kElem == Elem::F16)
    return __half_as_ushort(__float2half_rn(value));
  else
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

} // namespace headrace::kernels

#endif
