// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/AttentionAnyCuda.cuh"
#include "kernels/cuda/CudaEntry.h"

namespace headrace::kernels {

const void *attentionAnyKernelOf(const char *name) {
  static const CudaEntry kTable[] = {
      cudaEntryOf("attention_any_f32_f32", attentionAnyKernel<Elem::F32, ElementRow<Elem::F32>>),
      cudaEntryOf("attention_any_f32_f16", attentionAnyKernel<Elem::F32, ElementRow<Elem::F16>>),
      cudaEntryOf("attention_any_f32_bf16", attentionAnyKernel<Elem::F32, ElementRow<Elem::BF16>>),
      cudaEntryOf("attention_any_f16_f32", attentionAnyKernel<Elem::F16, ElementRow<Elem::F32>>),
      cudaEntryOf("attention_any_f16_f16", attentionAnyKernel<Elem::F16, ElementRow<Elem::F16>>),
      cudaEntryOf("attention_any_f16_bf16", attentionAnyKernel<Elem::F16, ElementRow<Elem::BF16>>),
      cudaEntryOf("attention_any_bf16_f32", attentionAnyKernel<Elem::BF16, ElementRow<Elem::F32>>),
      cudaEntryOf("attention_any_bf16_f16", attentionAnyKernel<Elem::BF16, ElementRow<Elem::F16>>),
      cudaEntryOf("attention_any_bf16_bf16", attentionAnyKernel<Elem::BF16, ElementRow<Elem::BF16>>),
      cudaEntryOf("attention_any_f32_packed", attentionAnyKernel<Elem::F32, CodeRow>),
      cudaEntryOf("attention_any_f16_packed", attentionAnyKernel<Elem::F16, CodeRow>),
      cudaEntryOf("attention_any_bf16_packed", attentionAnyKernel<Elem::BF16, CodeRow>),
  };
  return findEntry(kTable, name);
}

} // namespace headrace::kernels
