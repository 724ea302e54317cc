// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "bench/cuda/Gpu.h"
#include "bench/cuda/MetaBuffer.h"
#include "bench/figures/Bound.h"

namespace headrace::bench {

struct AttentionHeads {
  int64_t heads = 0, kvHeads = 0, headDim = 0;
};
inline constexpr AttentionHeads kLlama8bHeads{.heads = 32, .kvHeads = 8, .headDim = 128};

// Attention in BF16 over the rows of some sequences, blocks of 16 tokens in a random order.
class AttentionCase {
public:
  AttentionCase(const AttentionHeads &heads, const std::vector<BenchRows> &sequences);
  // Of one node, in a graph of a chain of them that go through copies of the cache in turn: so many that 256 MiB go by
  // before one is read again, 256 at most.
  double ms(Timer &timer);
  double kvBytes() const { return kvBytes_; }
  // Four a multiplied pair and dimension (two products), under the causal mask.
  double flops() const { return flops_; }
  Work work() const; // the caches read once, queries and results too

private:
  static constexpr int64_t kBlockTokens = 16;
  static constexpr size_t kLeastInRow = 10, kMostInRow = 256;
  AttentionHeads heads_;
  MetaBuffer meta_;
  double kvBytes_ = 0, flops_ = 0;
  size_t cacheBytes_, copies_;
  DeviceBuffer kv_, qkv_, out_, workspace_, arrivals_;
  kernels::AttentionArgs args_{};
  int64_t sequences_;
};

} // namespace headrace::bench
