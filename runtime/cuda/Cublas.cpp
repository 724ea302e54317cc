// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/Cublas.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/cuda/CudaError.h"

namespace headrace::cuda {
namespace {

const char *statusName(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "success";
  case CUBLAS_STATUS_NOT_INITIALIZED:
    return "not initialized";
  case CUBLAS_STATUS_ALLOC_FAILED:
    return "allocation failed";
  case CUBLAS_STATUS_INVALID_VALUE:
    return "invalid value";
  case CUBLAS_STATUS_ARCH_MISMATCH:
    return "architecture mismatch";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "execution failed";
  case CUBLAS_STATUS_NOT_SUPPORTED:
    return "not supported";
  default:
    return "internal error";
  }
}

} // namespace

absl::Status cublasFailed(cublasStatus_t status, const char *call, const std::string &during) {
  std::string message = absl::StrCat(during, ": ", call, ": ", statusName(status), " (", static_cast<int>(status), ")");
  if (const cudaError_t behind = cudaGetLastError(); behind != cudaSuccess)
    absl::StrAppend(&message, ", CUDA's ", cudaGetErrorName(behind), adviceAbout(behind));
  return status == CUBLAS_STATUS_ALLOC_FAILED    ? absl::ResourceExhaustedError(message)
         : status == CUBLAS_STATUS_NOT_SUPPORTED ? absl::UnimplementedError(message)
                                                 : absl::InternalError(message);
}

void giveBack(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS)
    (void)cudaGetLastError();
}

absl::StatusOr<CublasLt> openCublasLt(const std::vector<std::string> &folders) {
  ASSIGN_OR_RETURN(library, DynamicLibrary::open({"libcublasLt.so.13"}, folders));
  CublasLt lt{};
  lt.path = library.path();
  RETURN_IF_ERROR(library.find("cublasLtCreate", lt.create));
  RETURN_IF_ERROR(library.find("cublasLtDestroy", lt.destroy));
  RETURN_IF_ERROR(library.find("cublasLtGetVersion", lt.version));
  RETURN_IF_ERROR(library.find("cublasLtMatmul", lt.matmul));
  RETURN_IF_ERROR(library.find("cublasLtMatmulAlgoGetHeuristic", lt.heuristic));
  RETURN_IF_ERROR(library.find("cublasLtMatmulAlgoConfigGetAttribute", lt.algorithmAttribute));
  RETURN_IF_ERROR(library.find("cublasLtMatmulDescCreate", lt.descCreate));
  RETURN_IF_ERROR(library.find("cublasLtMatmulDescDestroy", lt.descDestroy));
  RETURN_IF_ERROR(library.find("cublasLtMatmulDescSetAttribute", lt.descSet));
  RETURN_IF_ERROR(library.find("cublasLtMatrixLayoutCreate", lt.layoutCreate));
  RETURN_IF_ERROR(library.find("cublasLtMatrixLayoutDestroy", lt.layoutDestroy));
  RETURN_IF_ERROR(library.find("cublasLtMatmulPreferenceCreate", lt.preferenceCreate));
  RETURN_IF_ERROR(library.find("cublasLtMatmulPreferenceDestroy", lt.preferenceDestroy));
  RETURN_IF_ERROR(library.find("cublasLtMatmulPreferenceSetAttribute", lt.preferenceSet));
  return lt;
}

absl::StatusOr<Cublas> openCublas(const std::vector<std::string> &folders) {
  ASSIGN_OR_RETURN(library, DynamicLibrary::open({"libcublas.so.13"}, folders));
  Cublas cublas{};
  cublas.path = library.path();
  RETURN_IF_ERROR(library.find("cublasCreate_v2", cublas.create));
  RETURN_IF_ERROR(library.find("cublasDestroy_v2", cublas.destroy));
  RETURN_IF_ERROR(library.find("cublasSetStream_v2", cublas.setStream));
  RETURN_IF_ERROR(library.find("cublasSetWorkspace_v2", cublas.setWorkspace));
  RETURN_IF_ERROR(library.find("cublasGemmEx", cublas.gemmEx));
  return cublas;
}

} // namespace headrace::cuda
