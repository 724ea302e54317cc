// SPDX-License-Identifier: Apache-2.0
//
// The tables behind cudaEntry: one for each file of kernels, so that files compile side by side.
#pragma once

#include <cstring>

namespace headrace::kernels {

struct CudaEntry {
  const char *name;
  const void *function;
};

template <typename Function> CudaEntry cudaEntryOf(const char *name, Function *function) {
  return {name, reinterpret_cast<const void *>(function)};
}

template <int kCount> const void *findEntry(const CudaEntry (&table)[kCount], const char *name) {
  for (const CudaEntry &entry : table)
    if (std::strcmp(entry.name, name) == 0)
      return entry.function;
  return nullptr;
}

// Null where the file has no kernel of that name.
const void *rowKernel(const char *name);
const void *ropeAppendKernelOf(const char *name);
const void *attentionAnyKernelOf(const char *name);
const void *attentionDecodeKernelOf(const char *name);
const void *attentionPrefillKernelOf(const char *name);
const void *packedProductKernelOf(const char *name);

} // namespace headrace::kernels
