// SPDX-License-Identifier: Apache-2.0
//
// How much compute and copies disturb each other on a device (cost/Record.h, MeasuredInterference).
#pragma once

#include "absl/status/statusor.h"
#include "runtime/cost/Record.h"
#include "runtime/profile/AnalyzerLaunches.h"
#include "runtime/profile/AnalyzerPlan.h"

namespace headrace::profile {

// The iteration of plan.besideCell alone and beside copies, in turns, so that what disturbs the machine for a while
// meets both; then copies that wait for its steps. Each turn of either, and the copies, take `seconds` of the device's
// time at most (AnalyzerLaunches::repeat). `plan.starts` must be there.
absl::StatusOr<cost::MeasuredInterference> measureInterference(const AnalyzerPlan &plan, AnalyzerLaunches &launches,
                                                               double seconds);

} // namespace headrace::profile
