// SPDX-License-Identifier: Apache-2.0
//
// Brings the weights to their homes in one placement, and to host memory whatever any placement keeps there.
#pragma once

#include "absl/status/statusor.h"
#include "runtime/core/Runtime.h"

namespace headrace::core {

// Onto an opened device. What was loaded, byte for byte what the plan says, or why not.
absl::StatusOr<Manifest> loadWeights(const plan::Plan &plan, Device &device, const model::WeightSource *weights,
                                     const LoadOptions &options);

} // namespace headrace::core
