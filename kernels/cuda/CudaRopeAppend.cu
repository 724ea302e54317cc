// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/CudaEntry.h"
#include "kernels/cuda/RopeAppendCuda.cuh"

namespace headrace::kernels {

const void *ropeAppendKernelOf(const char *name) {
  static const CudaEntry kTable[] = {
      cudaEntryOf("rope_append_f32_f32", ropeAppendKernel<Elem::F32, ElementCache<Elem::F32>>),
      cudaEntryOf("rope_append_f32_f16", ropeAppendKernel<Elem::F32, ElementCache<Elem::F16>>),
      cudaEntryOf("rope_append_f32_bf16", ropeAppendKernel<Elem::F32, ElementCache<Elem::BF16>>),
      cudaEntryOf("rope_append_f16_f32", ropeAppendKernel<Elem::F16, ElementCache<Elem::F32>>),
      cudaEntryOf("rope_append_f16_f16", ropeAppendKernel<Elem::F16, ElementCache<Elem::F16>>),
      cudaEntryOf("rope_append_f16_bf16", ropeAppendKernel<Elem::F16, ElementCache<Elem::BF16>>),
      cudaEntryOf("rope_append_bf16_f32", ropeAppendKernel<Elem::BF16, ElementCache<Elem::F32>>),
      cudaEntryOf("rope_append_bf16_f16", ropeAppendKernel<Elem::BF16, ElementCache<Elem::F16>>),
      cudaEntryOf("rope_append_bf16_bf16", ropeAppendKernel<Elem::BF16, ElementCache<Elem::BF16>>),
      cudaEntryOf("rope_append_f32_packed", ropeAppendKernel<Elem::F32, PackedCache>),
      cudaEntryOf("rope_append_f16_packed", ropeAppendKernel<Elem::F16, PackedCache>),
      cudaEntryOf("rope_append_bf16_packed", ropeAppendKernel<Elem::BF16, PackedCache>),
      cudaEntryOf("rotate_f32", rotateKernel<Elem::F32>),
      cudaEntryOf("rotate_f16", rotateKernel<Elem::F16>),
      cudaEntryOf("rotate_bf16", rotateKernel<Elem::BF16>),
      cudaEntryOf("append_act_f32_f32", appendActKernel<Elem::F32, ElementCache<Elem::F32>>),
      cudaEntryOf("append_act_f32_f16", appendActKernel<Elem::F32, ElementCache<Elem::F16>>),
      cudaEntryOf("append_act_f32_bf16", appendActKernel<Elem::F32, ElementCache<Elem::BF16>>),
      cudaEntryOf("append_act_f16_f32", appendActKernel<Elem::F16, ElementCache<Elem::F32>>),
      cudaEntryOf("append_act_f16_f16", appendActKernel<Elem::F16, ElementCache<Elem::F16>>),
      cudaEntryOf("append_act_f16_bf16", appendActKernel<Elem::F16, ElementCache<Elem::BF16>>),
      cudaEntryOf("append_act_bf16_f32", appendActKernel<Elem::BF16, ElementCache<Elem::F32>>),
      cudaEntryOf("append_act_bf16_f16", appendActKernel<Elem::BF16, ElementCache<Elem::F16>>),
      cudaEntryOf("append_act_bf16_bf16", appendActKernel<Elem::BF16, ElementCache<Elem::BF16>>),
      cudaEntryOf("append_act_f32_packed", appendActKernel<Elem::F32, PackedCache>),
      cudaEntryOf("append_act_f16_packed", appendActKernel<Elem::F16, PackedCache>),
      cudaEntryOf("append_act_bf16_packed", appendActKernel<Elem::BF16, PackedCache>),
  };
  return findEntry(kTable, name);
}

} // namespace headrace::kernels
