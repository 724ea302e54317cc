// SPDX-License-Identifier: Apache-2.0
//
// A command's outcome as an exit status: 0 done, 1 it cannot be met or it failed, 2 usage or bad input.
#pragma once

#include "absl/status/status.h"

namespace headrace::tools {

inline constexpr int kExitOk = 0, kExitFailed = 1, kExitBadInput = 2;

inline int exitCodeOf(const absl::Status &status) {
  switch (status.code()) {
  case absl::StatusCode::kOk:
    return kExitOk;
  case absl::StatusCode::kInvalidArgument:
  case absl::StatusCode::kNotFound:
  case absl::StatusCode::kOutOfRange:
  case absl::StatusCode::kDataLoss:
    return kExitBadInput;
  default:
    return kExitFailed;
  }
}

} // namespace headrace::tools
