// SPDX-License-Identifier: Apache-2.0
//
// The functions of cublasLt and cuBLAS that are used, found at run time.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>

#include <string>

#include "absl/status/statusor.h"
#include "runtime/cuda/DynamicLibrary.h"

namespace headrace::cuda {

struct CublasLt {
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtDestroy) destroy;
  decltype(&::cublasLtGetVersion) version;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&::cublasLtMatmulAlgoConfigGetAttribute) algorithmAttribute;
  decltype(&::cublasLtMatmulDescCreate) descCreate;
  decltype(&::cublasLtMatmulDescDestroy) descDestroy;
  decltype(&::cublasLtMatmulDescSetAttribute) descSet;
  decltype(&::cublasLtMatrixLayoutCreate) layoutCreate;
  decltype(&::cublasLtMatrixLayoutDestroy) layoutDestroy;
  decltype(&::cublasLtMatmulPreferenceCreate) preferenceCreate;
  decltype(&::cublasLtMatmulPreferenceDestroy) preferenceDestroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preferenceSet;
  std::string path;
};
absl::StatusOr<CublasLt> openCublasLt(const std::vector<std::string> &folders);

struct Cublas {
  decltype(&::cublasCreate_v2) create;
  decltype(&::cublasDestroy_v2) destroy;
  decltype(&::cublasSetStream_v2) setStream;
  decltype(&::cublasSetWorkspace_v2) setWorkspace;
  // cublas_api.h overloads it in C++: this is the library's symbol.
  cublasStatus_t (*gemmEx)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                           const void *, cudaDataType, int, const void *, cudaDataType, int, const void *, void *,
                           cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t);
  std::string path;
};
absl::StatusOr<Cublas> openCublas(const std::vector<std::string> &folders);

// "m 8 n 96 k 64 ...: cublasLtMatmul: not supported (15)", and the error of CUDA's that is behind it, if there is one.
absl::Status cublasFailed(cublasStatus_t status, const char *call, const std::string &during);

// As giveBack() of CUDA's (CudaError.h).
void giveBack(cublasStatus_t status);

#define HEADRACE_CUBLAS(during, name, call)                                                                            \
  do {                                                                                                                 \
    if (const cublasStatus_t status_ = (call); status_ != CUBLAS_STATUS_SUCCESS)                                       \
      return ::headrace::cuda::cublasFailed(status_, name, during);                                                    \
  } while (false)

} // namespace headrace::cuda
