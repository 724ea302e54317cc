// SPDX-License-Identifier: Apache-2.0
//
// Numbers that a kernel and its launch must agree on.
#pragma once

#include <cstdint>

namespace headrace::kernels {

inline constexpr int64_t kRopePlanes = 8;      // heads of q, k and v that a block of rope_append rotates and appends
inline constexpr int kSampleThreads = 1024;    // a power of two, whole warps
inline constexpr int kAnyAttentionChunk = 128; // tokens whose scores attention_any keeps; also its block's threads
inline constexpr int64_t kAnyAttentionDim = 256;

} // namespace headrace::kernels
