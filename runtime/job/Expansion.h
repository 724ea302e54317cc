// SPDX-License-Identifier: Apache-2.0
//
// What Goal::expansion may be.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/Text.h"
#include "runtime/job/JobFile.h"

namespace headrace::model {

inline constexpr std::string_view kExpansions = "\"auto\", or all KV by that on the device, from 1 to 1e6";

inline bool isExpansion(double value) { // false of NaN, too
  return value == kAutoExpansion || (value >= 1 && value <= kMaxExpansion);
}
// As a job file has it.
inline std::string expansionText(double expansion) {
  return expansion == kAutoExpansion ? std::string("\"auto\"") : cat(expansion);
}

} // namespace headrace::model
