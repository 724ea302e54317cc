// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/AttentionDecodeCuda.cuh"
#include "kernels/cuda/CudaEntry.h"

namespace headrace::kernels {

const void *attentionDecodeKernelOf(const char *name) {
  static const CudaEntry kTable[] = {
      cudaEntryOf("attention_decode_f16_64", attentionDecodeKernel<Elem::F16, 64>),
      cudaEntryOf("attention_decode_f16_80", attentionDecodeKernel<Elem::F16, 80>),
      cudaEntryOf("attention_decode_f16_96", attentionDecodeKernel<Elem::F16, 96>),
      cudaEntryOf("attention_decode_f16_128", attentionDecodeKernel<Elem::F16, 128>),
      cudaEntryOf("attention_decode_bf16_64", attentionDecodeKernel<Elem::BF16, 64>),
      cudaEntryOf("attention_decode_bf16_80", attentionDecodeKernel<Elem::BF16, 80>),
      cudaEntryOf("attention_decode_bf16_96", attentionDecodeKernel<Elem::BF16, 96>),
      cudaEntryOf("attention_decode_bf16_128", attentionDecodeKernel<Elem::BF16, 128>),
      cudaEntryOf("attention_decode_f16_64_packed", attentionDecodeKernel<Elem::F16, 64, PackedCacheRows<64>>),
      cudaEntryOf("attention_decode_f16_96_packed", attentionDecodeKernel<Elem::F16, 96, PackedCacheRows<96>>),
      cudaEntryOf("attention_decode_f16_128_packed", attentionDecodeKernel<Elem::F16, 128, PackedCacheRows<128>>),
      cudaEntryOf("attention_decode_bf16_64_packed", attentionDecodeKernel<Elem::BF16, 64, PackedCacheRows<64>>),
      cudaEntryOf("attention_decode_bf16_96_packed", attentionDecodeKernel<Elem::BF16, 96, PackedCacheRows<96>>),
      cudaEntryOf("attention_decode_bf16_128_packed", attentionDecodeKernel<Elem::BF16, 128, PackedCacheRows<128>>),
  };
  return findEntry(kTable, name);
}

} // namespace headrace::kernels
