// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/CudaEntry.h"
#include "kernels/cuda/PackedProductCuda.cuh"

namespace headrace::kernels {

const void *packedProductKernelOf(const char *name) {
  static const CudaEntry kTable[] = {
      cudaEntryOf("linear_packed_f16_q4", packedProductKernel<Elem::F16, 4>),
      cudaEntryOf("linear_packed_f16_q8", packedProductKernel<Elem::F16, 8>),
      cudaEntryOf("linear_packed_bf16_q4", packedProductKernel<Elem::BF16, 4>),
      cudaEntryOf("linear_packed_bf16_q8", packedProductKernel<Elem::BF16, 8>),
  };
  return findEntry(kTable, name);
}

} // namespace headrace::kernels
