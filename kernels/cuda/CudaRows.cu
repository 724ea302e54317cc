// SPDX-License-Identifier: Apache-2.0
//
// Ops that work row by row and element by element, sampling, and cudaEntry.
#include <initializer_list>

#include "kernels/cuda/ActivateCuda.cuh"
#include "kernels/cuda/CudaEntry.h"
#include "kernels/cuda/EmbedCuda.cuh"
#include "kernels/cuda/GatherRowsCuda.cuh"
#include "kernels/cuda/NormCuda.cuh"
#include "kernels/cuda/SampleCuda.cuh"
#include "kernels/cuda/UnpackCuda.cuh"

namespace headrace::kernels {

const void *rowKernel(const char *name) {
  static const CudaEntry kTable[] = {
      cudaEntryOf("embed_f32", embedKernel<Elem::F32>),
      cudaEntryOf("embed_f16", embedKernel<Elem::F16>),
      cudaEntryOf("embed_bf16", embedKernel<Elem::BF16>),
      cudaEntryOf("keep_ids", keepIdsKernel),
      cudaEntryOf("norm_f32", normKernel<Elem::F32>),
      cudaEntryOf("norm_f16", normKernel<Elem::F16>),
      cudaEntryOf("norm_bf16", normKernel<Elem::BF16>),
      cudaEntryOf("activate_f32", activateKernel<Elem::F32>),
      cudaEntryOf("activate_f16", activateKernel<Elem::F16>),
      cudaEntryOf("activate_bf16", activateKernel<Elem::BF16>),
      cudaEntryOf("bias_activate_f32", biasActivateKernel<Elem::F32>),
      cudaEntryOf("bias_activate_f16", biasActivateKernel<Elem::F16>),
      cudaEntryOf("bias_activate_bf16", biasActivateKernel<Elem::BF16>),
      cudaEntryOf("unpack_f32", unpackKernel<Elem::F32>),
      cudaEntryOf("unpack_f16", unpackKernel<Elem::F16>),
      cudaEntryOf("unpack_bf16", unpackKernel<Elem::BF16>),
      cudaEntryOf("gather_rows", gatherRowsKernel),
      cudaEntryOf("fetch_rows", fetchRowsKernel),
      cudaEntryOf("act_append", actAppendKernel),
      cudaEntryOf("gather_act", gatherActKernel),
      cudaEntryOf("publish", publishKernel),
      cudaEntryOf("sample", sampleKernel),
  };
  return findEntry(kTable, name);
}

const void *cudaEntry(const char *kernel) {
  if (kernel == nullptr)
    return nullptr;
  for (auto *find : {rowKernel, ropeAppendKernelOf, attentionAnyKernelOf, attentionDecodeKernelOf,
                     attentionPrefillKernelOf, packedProductKernelOf})
    if (const void *function = find(kernel))
      return function;
  return nullptr;
}

} // namespace headrace::kernels
