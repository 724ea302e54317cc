// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/AttentionAnyCuda.cuh"
#include "kernels/cuda/CudaEntry.h"

namespace headrace::kernels {

const void *attentionAnyKernelOf(const char *name) {
  static const CudaEntry kTable[] = {
      cudaEntryOf("attention_any_f32_f32", attentionAnyKernel<Elem::F32, Elem::F32>),
      cudaEntryOf("attention_any_f32_f16", attentionAnyKernel<Elem::F32, Elem::F16>),
      cudaEntryOf("attention_any_f32_bf16", attentionAnyKernel<Elem::F32, Elem::BF16>),
      cudaEntryOf("attention_any_f16_f32", attentionAnyKernel<Elem::F16, Elem::F32>),
      cudaEntryOf("attention_any_f16_f16", attentionAnyKernel<Elem::F16, Elem::F16>),
      cudaEntryOf("attention_any_f16_bf16", attentionAnyKernel<Elem::F16, Elem::BF16>),
      cudaEntryOf("attention_any_bf16_f32", attentionAnyKernel<Elem::BF16, Elem::F32>),
      cudaEntryOf("attention_any_bf16_f16", attentionAnyKernel<Elem::BF16, Elem::F16>),
      cudaEntryOf("attention_any_bf16_bf16", attentionAnyKernel<Elem::BF16, Elem::BF16>),
  };
  return findEntry(kTable, name);
}

} // namespace headrace::kernels
