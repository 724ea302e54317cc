// SPDX-License-Identifier: Apache-2.0
//
// Reads the logits that an iteration leaves on the device, before a later one overwrites them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/core/Device.h"

namespace headrace::serve {

class KeptLogits {
public:
  // Finds where each schedule leaves them. FailedPrecondition, by name, for a device without data or a schedule that
  // overwrites them.
  absl::Status prepare(const plan::Plan &plan, const core::Device &device);
  // Appends those of a mini-batch's `index`-th sampled row (vocab of them) to `out`, once the iteration has ended.
  absl::Status read(const plan::Plan &plan, core::Device &device, uint32_t variant, uint32_t miniBatch, size_t index,
                    std::vector<float> &out) const;

private:
  std::vector<plan::Operand> logits_; // one a schedule, in it one a mini-batch
};

} // namespace headrace::serve
