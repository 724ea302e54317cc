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
                                                  cudaGetErrorName(error), ")", adviceAbout(error)));
}

void giveBack(cudaError_t error) {
  if (error != cudaSuccess)
    (void)cudaGetLastError();
}

const char *adviceAbout(cudaError_t error) {
  switch (error) {
  case cudaErrorECCUncorrectable:
    return "; the GPU's memory has an error that ECC cannot correct: end this process, look at `nvidia-smi -q -d "
           "ECC,ROW_REMAPPER`, and reset the GPU (`nvidia-smi --gpu-reset`) or restart the machine before it is used "
           "again; if it comes back, replace the GPU";
  case cudaErrorNvlinkUncorrectable:
    return "; NVLink has an error that it cannot correct: end this process, look at `nvidia-smi nvlink -e`, and reset "
           "the GPU (`nvidia-smi --gpu-reset`) or restart the machine before it is used again";
  case cudaErrorContained:
    return "; an error of the GPU's memory has ended this process's work and nobody else's: end this process and start "
           "it again";
  case cudaErrorIllegalAddress:
  case cudaErrorLaunchFailure:
  case cudaErrorLaunchTimeout:
  case cudaErrorAssert:
  case cudaErrorHardwareStackError:
  case cudaErrorIllegalInstruction:
  case cudaErrorMisalignedAddress:
  case cudaErrorInvalidAddressSpace:
  case cudaErrorInvalidPc:
  case cudaErrorTensorMemoryLeak:
  case cudaErrorMpsClientTerminated:
  case cudaErrorExternalDevice:
    return "; no CUDA call of this process works after it: end the process and start it again (`compute-sanitizer` "
           "says which kernel it was, `dmesg | grep Xid` what the driver saw)";
  default:
    return "";
  }
}

} // namespace headrace::cuda
