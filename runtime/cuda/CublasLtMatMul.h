// SPDX-License-Identifier: Apache-2.0
//
// MatMulLibrary by cublasLt.
#pragma once

#include <library_types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cuda/MatMulLibrary.h"

namespace headrace::cuda {

absl::StatusOr<std::unique_ptr<MatMulLibrary>> openCublasLtMatMul(const std::vector<std::string> &folders,
                                                                  const ProductAlgorithms &chosen);

constexpr cudaDataType libraryType(kernels::Elem elem) {
  return elem == kernels::Elem::F16 ? CUDA_R_16F : elem == kernels::Elem::BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

} // namespace headrace::cuda
