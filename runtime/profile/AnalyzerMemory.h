// SPDX-License-Identifier: Apache-2.0
//
// What a profile's iterations read: weights at their homes, zeros in the caches.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "runtime/core/Device.h"
#include "runtime/model/WeightSource.h"

namespace headrace::profile {

// Of a plan with everything resident, opened on this device. Nothing for a device that holds no data; InvalidArgument
// for one that does and null `weights`. `progress` may be empty: bytes of weights so far and in all.
absl::Status fillMemory(const plan::Plan &plan, core::Device &device, const model::WeightSource *weights,
                        const std::function<void(uint64_t done, uint64_t total)> &progress);

} // namespace headrace::profile
