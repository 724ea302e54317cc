// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/figures/Cells.h"
#include "runtime/core/Device.h"
#include "runtime/core/Runtime.h"

namespace headrace::bench {

// When each step of one iteration of a cell ran.
struct StepTimesOf {
  uint32_t variant = 0;
  std::vector<core::StepTime> steps; // of the variant's schedule
  double ms = 0;                     // from the first start to the last end
};

// Of `count` iterations, each of which ends before the next is launched, that of median length. The runtime's device
// must have been opened with DeviceOptions::trace; FailedPrecondition where it measures nothing.
absl::StatusOr<StepTimesOf> stepTimes(core::Runtime &runtime, uint32_t placement, const Cell &cell, int count);

} // namespace headrace::bench
