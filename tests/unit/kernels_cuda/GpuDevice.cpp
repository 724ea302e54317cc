// SPDX-License-Identifier: Apache-2.0
//
// The GPU that the kernels' tests run on (tests/gpu). Memory is pinned on the host and mapped: tests and kernels see it
// at one address, and no page ever moves, as pages of managed memory would.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/unit/kernels_cuda/TestDevice.h"

namespace headrace::kernels {
namespace {

void check(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

class GpuDevice : public TestDevice {
public:
  void *allocate(size_t bytes) override {
    void *memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped), "cudaHostAlloc");
    if (reinterpret_cast<uintptr_t>(memory) % 256 != 0) {
      std::fprintf(stderr, "cudaHostAlloc: %p is not aligned to 256 bytes, as kernels expect\n", memory);
      std::exit(1);
    }
    return memory;
  }
  void release(void *memory) override { check(cudaFreeHost(memory), "cudaFreeHost"); }
  void run(const std::vector<KernelRun> &runs, uint64_t) override {
    std::vector<cudaStream_t> streams; // one each
    for (const KernelRun &one : runs) {
      const CudaLaunch &launch = one.launch;
      const void *function = cudaEntry(launch.kernel);
      ASSERT_NE(function, nullptr) << launch.kernel;
      if (launch.sharedBytes > 48 << 10)
        check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(launch.sharedBytes)),
              launch.kernel);
      cudaStream_t stream = nullptr;
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
      streams.push_back(stream);
      void *pointers[] = {const_cast<void *>(one.args)};
      check(cudaLaunchKernel(function, dim3(launch.grid[0], launch.grid[1], launch.grid[2]),
                             dim3(launch.block[0], launch.block[1], launch.block[2]), pointers, launch.sharedBytes,
                             stream),
            launch.kernel);
    }
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (cudaStream_t stream : streams)
      check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  }
  bool emulated() const override { return false; }
};

} // namespace

TestDevice &testDevice() {
  static GpuDevice device;
  return device;
}

} // namespace headrace::kernels
