// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "runtime/core/InUse.h"
#include "runtime/cost/CostModel.h"

namespace headrace::tools {

// What one launch ran of its bucket and was told of KV, each by mini-batch; nothing where it is not known, which counts
// as all of it.
struct RanLaunch {
  std::vector<cost::Rows> rows;
  std::vector<core::InUse> inUse;

  core::LaunchInUse launchInUse() const {
    return inUse.empty() ? core::LaunchInUse() : core::LaunchInUse(absl::MakeConstSpan(inUse));
  }
};

} // namespace headrace::tools
