// SPDX-License-Identifier: Apache-2.0
//
// Kernels that only measurements need: BenchKernels.h has their arguments. As the kernels of plans, they are compiled
// for a GPU and for the emulator.
#pragma once

#include <chrono>
#include <thread>

#include "bench/cuda/BenchKernels.h"
#include "kernels/cuda/CudaPrimitives.cuh"

namespace headrace::bench {

// Programmatic launches (compute capability 9.0): the grid behind this one may start; what grids in front of it wrote
// is there. Without a programmatic edge neither does anything.
HEADRACE_DEVICE void letNextStart() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
HEADRACE_DEVICE void awaitGridBefore() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

HEADRACE_DEVICE void letHostRun() {
#ifndef __CUDACC__
  std::this_thread::yield();
#endif
}
HEADRACE_DEVICE uint64_t nanoseconds() {
#ifdef __CUDACC__
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

__global__ void chainKernel(const ChainArgs args) {
  letNextStart();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  awaitGridBefore();
  for (int64_t i = first; i < args.n; i += step)
    args.y[i] = args.x[i] + 1.0f;
}

__global__ void askKernel(const AskArgs args) {
  if (threadIdx.x != 0)
    return;
  kernels::fenceSystem(); // what kernels before wrote is there when the host is asked
  *static_cast<volatile uint32_t *>(args.asked) = args.round;
  const uint64_t from = nanoseconds();
  while (*static_cast<const volatile uint32_t *>(args.answered) < args.round && nanoseconds() - from < 2000000000)
    letHostRun();
  kernels::fenceSystem();
}

__global__ void readsKernel(const ReadsArgs args) {
  if (threadIdx.x != 0)
    return;
  uint32_t at = 0;
  for (uint32_t i = 0; i < args.count; ++i)
    at = static_cast<const volatile uint32_t *>(args.words)[at];
  *args.last = at;
}

} // namespace headrace::bench
