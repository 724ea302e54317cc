// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/Driver.h"

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/CudaError.h"
#include "runtime/cuda/DeviceChecks.h"

namespace headrace::cuda {
namespace {

absl::StatusOr<int> attribute(const char *what, cudaDeviceAttr which, int device) {
  int value = 0;
  HEADRACE_CUDA(absl::StrCat("asking GPU ", device, " ", what), cudaDeviceGetAttribute(&value, which, device));
  return value;
}

} // namespace

void orderByPci() { (void)::setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/0); }

absl::StatusOr<DeviceInfo> selectDevice(int index) {
  orderByPci();
  DeviceInfo info{.index = index};
  // Needs no driver: 0 where there is none.
  if (const cudaError_t error = cudaDriverGetVersion(&info.driverVersion); error != cudaSuccess)
    return unavailable(
        std::string(cudaFailed(error, "cudaDriverGetVersion", "asking for the driver's version").message()));
  RETURN_IF_ERROR(checkDriver(info.driverVersion));
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess && error != cudaErrorNoDevice)
    return cudaFailed(error, "cudaGetDeviceCount", "counting GPUs");
  (void)cudaGetLastError();
  RETURN_IF_ERROR(checkIndex(index, count));
  const std::string during = absl::StrCat("selecting GPU ", index);
  HEADRACE_CUDA(during, cudaSetDevice(index));
  cudaDeviceProp properties{};
  HEADRACE_CUDA(during, cudaGetDeviceProperties(&properties, index));
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  RETURN_IF_ERROR(checkUsable(info.name, info.major, info.minor, index));
  if (absl::StatusOr<int> node = attribute("where its host memory is", cudaDevAttrHostNumaId, index); node.ok())
    info.numaNode = *node; // else unknown
  return info;
}

absl::Status checkUsable(const std::string &name, int major, int minor, int index) {
  RETURN_IF_ERROR(checkArchitecture(name, HEADRACE_CUDA_ARCHITECTURES, major, minor));
  ASSIGN_OR_RETURN(inPlace, attribute("whether it reads pinned memory in place",
                                      cudaDevAttrCanUseHostPointerForRegisteredMem, index));
  return inPlace != 0 ? absl::OkStatus()
                      : unavailable(absl::StrCat(name, " cannot read pinned host memory at the host's addresses"));
}

absl::Status checkDeviceMemory(uint64_t arena, uint64_t overhead) {
  size_t free = 0, total = 0;
  HEADRACE_CUDA("asking how much device memory is free", cudaMemGetInfo(&free, &total));
  return checkFreeMemory(arena, overhead, free, total);
}

} // namespace headrace::cuda
