// SPDX-License-Identifier: Apache-2.0
//
// What no step of a plan may take longer than: of prices, of records and of plans the same.
#pragma once

#include <cstdint>

namespace headrace::model {

// 2.4 hours; no sum over the 2^20 steps that a schedule may have overflows.
inline constexpr uint64_t kLongestStepNs = uint64_t{1} << 43;

} // namespace headrace::model
