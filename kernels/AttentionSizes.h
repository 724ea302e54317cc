// SPDX-License-Identifier: Apache-2.0
//
// Which head sizes have CUDA attention kernels on tensor cores. All others up to kAnyAttentionDim, 112, 192 and 256
// among them, and all F32, are computed by attention_any, which is plain and slow; prices go by it, too.
#pragma once

#include <cstdint>

namespace headrace::kernels {

inline constexpr int64_t kTensorCoreHeads[] = {64, 80, 96, 128};

// Which of them; -1: none.
constexpr int tensorCoreHead(int64_t headDim) {
  for (int i = 0; i < 4; ++i)
    if (kTensorCoreHeads[i] == headDim)
      return i;
  return -1;
}

} // namespace headrace::kernels
