// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/Driver.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "runtime/cuda/Architectures.h"
#include "runtime/cuda/CudaError.h"

namespace headrace::cuda {
namespace {

constexpr const char *kWhereElse = "; or run with --device host (plans for host hardware) or --device sim";

std::string versionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

absl::Status unavailable(const std::string &message) {
  return absl::UnavailableError(absl::StrCat("cuda device: ", message, kWhereElse));
}

absl::StatusOr<int> attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  HEADRACE_CUDA("cuda device", cudaDeviceGetAttribute(&value, which, device));
  return value;
}

} // namespace

absl::StatusOr<DeviceInfo> selectDevice(int index) {
  DeviceInfo info{.index = index};
  // Needs no driver: 0 where there is none.
  if (cudaDriverGetVersion(&info.driverVersion) != cudaSuccess || info.driverVersion == 0)
    return unavailable("no NVIDIA driver answers: install one for CUDA 13.0 or later, and see that this process may "
                       "open /dev/nvidia*");
  if (info.driverVersion < kNeededDriver)
    return unavailable(absl::StrCat("the NVIDIA driver is for CUDA ", versionText(info.driverVersion), ", expected ",
                                    versionText(kNeededDriver), " or later: update the driver"));
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess && error != cudaErrorNoDevice)
    return cudaFailed(error, "cudaGetDeviceCount", "cuda device");
  (void)cudaGetLastError();
  if (count == 0)
    return unavailable("the driver knows no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES");
  if (index < 0 || index >= count)
    return unavailable(absl::StrCat("no GPU ", index, ": there are ", count, ", counted from 0"));
  HEADRACE_CUDA("cuda device", cudaSetDevice(index));
  cudaDeviceProp properties{};
  HEADRACE_CUDA("cuda device", cudaGetDeviceProperties(&properties, index));
  info.name = properties.name;
  info.major = properties.major;
  info.minor = properties.minor;
  if (!architectureBuiltIn(HEADRACE_CUDA_ARCHITECTURES, info.major, info.minor))
    return unavailable(absl::StrCat(info.name, " has compute capability ", info.major, ".", info.minor,
                                    ", the kernels were built for ", HEADRACE_CUDA_ARCHITECTURES,
                                    ": build with CMAKE_CUDA_ARCHITECTURES=", info.major, info.minor));
  absl::StatusOr<int> inPlace = attribute(cudaDevAttrCanUseHostPointerForRegisteredMem, index);
  if (!inPlace.ok())
    return inPlace.status();
  if (*inPlace == 0)
    return unavailable(absl::StrCat(info.name, " cannot read pinned host memory at the host's addresses"));
  if (absl::StatusOr<int> node = attribute(cudaDevAttrHostNumaId, index); node.ok())
    info.numaNode = *node; // else unknown
  return info;
}

absl::Status checkDeviceMemory(uint64_t arena, uint64_t overhead) {
  size_t free = 0, total = 0;
  HEADRACE_CUDA("cuda device", cudaMemGetInfo(&free, &total));
  if (arena <= free && overhead <= free - arena)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("device arena: the plan takes ", arena, " bytes and about ", overhead, " for its graphs, ", free,
                   " of the device's ", total,
                   " are free: end other processes on this GPU (nvidia-smi), or compile for less with "
                   "--device-memory"));
}

} // namespace headrace::cuda
