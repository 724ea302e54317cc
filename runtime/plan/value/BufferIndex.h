// SPDX-License-Identifier: Apache-2.0
//
// Where in Plan::buffers a buffer stands, by what it is: looked through once, then found at once. Of any plan whose
// model is valid (model::validate), also one that was not verified; of two that are the same the first counts.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

// Numbers in Plan::buffers, which must not change meanwhile; kNone where the plan has none.
class BufferIndex {
public:
  explicit BufferIndex(const Plan &plan);

  uint32_t weight(size_t unit) const { return unit < weights_.size() ? weights_[unit] : kNone; }
  uint32_t kv(int64_t layer, uint32_t miniBatch = 0) const {
    const size_t at = static_cast<size_t>(layer) * miniBatches_ + miniBatch;
    return layer >= 0 && miniBatch < miniBatches_ && at < kv_.size() ? kv_[at] : kNone;
  }
  // Activation blocks.
  uint32_t act(int64_t layer, uint32_t miniBatch = 0) const {
    const size_t at = static_cast<size_t>(layer) * miniBatches_ + miniBatch;
    return layer >= 0 && miniBatch < miniBatches_ && at < act_.size() ? act_[at] : kNone;
  }
  uint32_t residual(uint32_t miniBatch) const { return miniBatch < residuals_.size() ? residuals_[miniBatch] : kNone; }
  uint32_t io(Io which) const { return io_[static_cast<size_t>(which)]; }

private:
  size_t miniBatches_;
  std::vector<uint32_t> weights_, kv_, act_, residuals_; // kv and act by layer, in it by mini-batch
  std::array<uint32_t, model::enumCount<Io>()> io_;
};

} // namespace headrace::plan
