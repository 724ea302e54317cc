// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/Gpus.h"

#include <cuda_runtime_api.h>

#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/CudaError.h"
#include "runtime/cuda/DeviceChecks.h"
#include "runtime/cuda/Driver.h"

namespace headrace::cuda {
namespace {

// 0 where the driver does not say.
double said(cudaDeviceAttr which, int index) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, which, index) != cudaSuccess) {
    (void)cudaGetLastError();
    value = 0;
  }
  return value;
}

} // namespace

absl::StatusOr<std::vector<Gpu>> gpus() {
  orderByPci();
  int version = 0, count = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0)
    return std::vector<Gpu>();
  RETURN_IF_ERROR(checkDriver(version));
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return std::vector<Gpu>();
  }
  std::vector<Gpu> gpus;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    HEADRACE_CUDA("listing GPUs", cudaGetDeviceProperties(&properties, index));
    Gpu gpu{.index = index,
            .name = properties.name,
            .major = properties.major,
            .minor = properties.minor,
            .memoryBytes = properties.totalGlobalMem,
            .multiprocessors = properties.multiProcessorCount,
            .clock = 1e3 * said(cudaDevAttrClockRate, index)};
    // Two transfers a clock of the memory, which is in kHz; the bus is in bits.
    gpu.memoryBandwidth =
        2e3 * said(cudaDevAttrMemoryClockRate, index) * said(cudaDevAttrGlobalMemoryBusWidth, index) / 8;
    gpu.usable = checkUsable(gpu.name, gpu.major, gpu.minor, index);
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

} // namespace headrace::cuda
