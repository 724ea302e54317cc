// SPDX-License-Identifier: Apache-2.0
//
// What the record says that an iteration whose layers wait for copies takes, held against what its slowest take.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/Device.h"
#include "runtime/cost/Record.h"
#include "runtime/plan/value/Plan.h"
#include "runtime/profile/AnalyzerLaunches.h"
#include "runtime/profile/AnalyzerPlan.h"

namespace headrace::profile {

// Of one launch with nothing before it, ns: each lane runs its steps in order, each once what it waits for has ended.
// Compute takes the cell's medians, as much longer as copies beside it make it; a copy takes what it takes beside
// compute, and starts a little after the compute step that it has waited for. `sites`: of each step (AnalyzerPlan.h).
uint64_t predictIterationNs(const cost::Record &record, const cost::Cell &cell, const plan::Schedule &schedule,
                            absl::Span<const std::optional<cost::Site>> sites);

// What 99 of 100 stay within, on the safe side: of n samples 0.01 n are slower than the p99, give or take a standard
// deviation of sqrt(0.99 x 0.01 n), and so many fewer are taken to be. Of 300 the second slowest, of 2400 the 20th. At
// least one sample; nearest rank.
uint64_t slowestOf(std::vector<uint64_t> samples);

// 300 such iterations of the plan, and 300 with everything resident, of a pair that the record has measured, then up to
// seven more such turns as `seconds` of the device's time allow: what disturbs a machine comes and goes. The first two
// have at most half of them each, but 50 iterations. Two are in flight, as a generation has them: what holds a machine
// up does not find it at rest.
absl::StatusOr<cost::MeasuredSpread> measureSpread(const cost::Record &record, const AnalyzerPlan &plan,
                                                   core::Device &device, AnalyzerLaunches &launches, double seconds);

} // namespace headrace::profile
