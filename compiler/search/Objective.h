// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include "runtime/cost/CostModel.h"

namespace headrace::compiler {

// What a bucket is held against.
struct Objective {
  cost::Bucket bucket;
  bool decode = true;
  uint64_t residentNs = 0;                          // nothing offloaded
  uint64_t layerComputeNs = 0, layerTransferNs = 0; // t_c and t_t of Select-N
  uint64_t sloNs = 0;                               // 0: none for its class
  // sloNs, or the largest number
  uint64_t limit() const { return sloNs > 0 ? sloNs : std::numeric_limits<uint64_t>::max(); }
};

} // namespace headrace::compiler
