// SPDX-License-Identifier: Apache-2.0
//
// What an iteration of one iteration class does with memory, all weights at home on the device.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/evaluate/Steps.h"
#include "passes/algorithms/PackRanges.h"

namespace headrace::compiler {

struct MemoryUse {
  struct Unit {
    uint64_t bytes = 0;
    int64_t firstUse = -1, lastUse = -1; // compute steps that read it, embed left out; -1: none
  };
  std::vector<Unit> units;                       // in the order of the weight layout
  std::vector<algorithms::LiveRange> transients; // lives in compute steps
};
MemoryUse memoryUseOf(const Steps &steps);

} // namespace headrace::compiler
