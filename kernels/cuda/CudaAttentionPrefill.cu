// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/AttentionPrefillCuda.cuh"
#include "kernels/cuda/CudaEntry.h"

namespace headrace::kernels {

const void *attentionPrefillKernelOf(const char *name) {
  static const CudaEntry kTable[] = {
      cudaEntryOf("attention_prefill_f16_64_m64", attentionPrefillKernel<Elem::F16, 64, 1>),
      cudaEntryOf("attention_prefill_f16_64_m128", attentionPrefillKernel<Elem::F16, 64, 2>),
      cudaEntryOf("attention_prefill_f16_80_m64", attentionPrefillKernel<Elem::F16, 80, 1>),
      cudaEntryOf("attention_prefill_f16_96_m64", attentionPrefillKernel<Elem::F16, 96, 1>),
      cudaEntryOf("attention_prefill_f16_128_m64", attentionPrefillKernel<Elem::F16, 128, 1>),
      cudaEntryOf("attention_prefill_f16_128_m128", attentionPrefillKernel<Elem::F16, 128, 2>),
      cudaEntryOf("attention_prefill_bf16_64_m64", attentionPrefillKernel<Elem::BF16, 64, 1>),
      cudaEntryOf("attention_prefill_bf16_64_m128", attentionPrefillKernel<Elem::BF16, 64, 2>),
      cudaEntryOf("attention_prefill_bf16_80_m64", attentionPrefillKernel<Elem::BF16, 80, 1>),
      cudaEntryOf("attention_prefill_bf16_96_m64", attentionPrefillKernel<Elem::BF16, 96, 1>),
      cudaEntryOf("attention_prefill_bf16_128_m64", attentionPrefillKernel<Elem::BF16, 128, 1>),
      cudaEntryOf("attention_prefill_bf16_128_m128", attentionPrefillKernel<Elem::BF16, 128, 2>),
      cudaEntryOf("attention_prefill_f16_64_m64_packed", attentionPrefillKernel<Elem::F16, 64, 1, PackedCacheRows<64>>),
      cudaEntryOf("attention_prefill_f16_96_m64_packed", attentionPrefillKernel<Elem::F16, 96, 1, PackedCacheRows<96>>),
      cudaEntryOf("attention_prefill_f16_128_m64_packed",
                  attentionPrefillKernel<Elem::F16, 128, 1, PackedCacheRows<128>>),
      cudaEntryOf("attention_prefill_bf16_64_m64_packed",
                  attentionPrefillKernel<Elem::BF16, 64, 1, PackedCacheRows<64>>),
      cudaEntryOf("attention_prefill_bf16_96_m64_packed",
                  attentionPrefillKernel<Elem::BF16, 96, 1, PackedCacheRows<96>>),
      cudaEntryOf("attention_prefill_bf16_128_m64_packed",
                  attentionPrefillKernel<Elem::BF16, 128, 1, PackedCacheRows<128>>),
  };
  return findEntry(kTable, name);
}

} // namespace headrace::kernels
