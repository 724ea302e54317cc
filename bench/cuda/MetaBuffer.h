// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "bench/cuda/Gpu.h"
#include "kernels/IterationMeta.h"

namespace headrace::bench {

// The iteration buffer of `sequences` of `tokens` new rows each behind `context - tokens` earlier ones, on the device;
// blocks from 1 on in a random order.
class MetaBuffer {
public:
  MetaBuffer(int64_t sequences, int64_t tokens, int64_t context, int64_t blockTokens);
  const kernels::IterationMeta *get() const { return device_.as<kernels::IterationMeta>(); }
  int64_t blocks() const { return blocks_; } // the scratch block included

private:
  int64_t blocksEach_, blocks_;
  kernels::MetaLayout layout_;
  DeviceBuffer device_;
};

} // namespace headrace::bench
