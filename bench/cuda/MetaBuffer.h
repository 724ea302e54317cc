// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "bench/cuda/Gpu.h"
#include "kernels/IterationMeta.h"

namespace headrace::bench {

// One sequence's part of an iteration: new rows, and the tokens in its cache once they are in.
struct BenchRows {
  int64_t tokens = 0, context = 0;
};
struct BenchSampling {
  float temperature = 0, topP = 1; // greedy
};

// The iteration buffer of such sequences on the device; blocks from 1 on in a random order, each sequence has its own.
class MetaBuffer {
public:
  MetaBuffer(const std::vector<BenchRows> &sequences, int64_t blockTokens, const BenchSampling &sampling = {});
  const kernels::IterationMeta *get() const { return device_.as<kernels::IterationMeta>(); }
  int64_t blocks() const { return blocks_; } // the scratch block included
  int64_t tokens() const { return layout_.maxTokens; }
  int64_t longest() const { return longest_; } // context

private:
  int64_t longest_, blocks_;
  kernels::MetaLayout layout_;
  DeviceBuffer device_;
};

} // namespace headrace::bench
