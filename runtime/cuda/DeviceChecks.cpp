// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/DeviceChecks.h"

#include "absl/strings/str_cat.h"
#include "runtime/cuda/Architectures.h"

namespace headrace::cuda {
namespace {

constexpr const char *kWhereElse = "; or run with --device host (plans for host hardware) or --device sim";

std::string versionText(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

} // namespace

absl::Status unavailable(const std::string &message) {
  return absl::UnavailableError(absl::StrCat("cuda device: ", message, kWhereElse));
}

absl::Status checkDriver(int version) {
  if (version == 0)
    return unavailable(absl::StrCat("no NVIDIA driver answers: install one for CUDA ", versionText(kNeededDriver),
                                    " or later, and see that this process may open /dev/nvidia*"));
  if (version < kNeededDriver)
    return unavailable(absl::StrCat("the NVIDIA driver is for CUDA ", versionText(version), ", expected ",
                                    versionText(kNeededDriver), " or later: update the driver"));
  return absl::OkStatus();
}

absl::Status checkIndex(int index, int count) {
  if (count == 0)
    return unavailable("the driver knows no GPU: check nvidia-smi and CUDA_VISIBLE_DEVICES");
  if (index < 0 || index >= count)
    return unavailable(absl::StrCat("no GPU ", index, ": there are ", count, ", counted from 0"));
  return absl::OkStatus();
}

absl::Status checkArchitecture(const std::string &name, const std::string &built, int major, int minor) {
  const std::string has = absl::StrCat(name, " has compute capability ", major, ".", minor);
  if (10 * major + minor < kLeastArchitecture)
    return unavailable(absl::StrCat(has, ", expected ", kLeastArchitecture / 10, ".", kLeastArchitecture % 10,
                                    " (A100, A10, RTX 30) or later: the kernels need its tensor cores and copies"));
  if (codeFor(built, major, minor) != KernelCode::None)
    return absl::OkStatus();
  return unavailable(absl::StrCat(has, ", the kernels were built for ", built,
                                  ": build with CMAKE_CUDA_ARCHITECTURES=", major, minor));
}

absl::Status checkFreeMemory(uint64_t arena, uint64_t overhead, uint64_t free, uint64_t total) {
  if (arena <= free && overhead <= free - arena)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("device arena: the plan takes ", arena, " bytes and about ", overhead, " for its graphs, ", free,
                   " of the device's ", total,
                   " are free: end other processes on this GPU (nvidia-smi), or compile for less with "
                   "--device-memory"));
}

} // namespace headrace::cuda
