// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/CudaError.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace headrace::cuda {
namespace {

absl::StatusCode codeOf(cudaError_t error) {
  switch (error) {
  case cudaErrorMemoryAllocation:
    return absl::StatusCode::kResourceExhausted;
  case cudaErrorNoDevice:
  case cudaErrorInsufficientDriver:
  case cudaErrorSystemNotReady:
  case cudaErrorSystemDriverMismatch:
  case cudaErrorDevicesUnavailable:
    return absl::StatusCode::kUnavailable;
  case cudaErrorNotSupported:
  case cudaErrorNoKernelImageForDevice:
    return absl::StatusCode::kUnimplemented;
  default:
    return absl::StatusCode::kInternal;
  }
}

} // namespace

absl::Status cudaFailed(cudaError_t error, const char *call, const std::string &during) {
  std::string name(call);
  name.erase(std::min(name.find('('), name.size()));
  // Reported here; the next call must not find it again.
  (void)cudaGetLastError();
  return absl::Status(codeOf(error), absl::StrCat(during, ": ", name, ": ", cudaGetErrorString(error), " (",
                                                  cudaGetErrorName(error), ")"));
}

} // namespace headrace::cuda
