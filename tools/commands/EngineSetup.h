// SPDX-License-Identifier: Apache-2.0
//
// The scheduler's flags against what a job asks for and a plan has.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/plan/value/Plan.h"
#include "tools/commands/Commands.h"

namespace headrace::tools {

// Refuses, by flag and range, what an engine would not take: of a plan that is not made yet, by its batch, of all
// mini-batches.
absl::Status checkScheduler(const SchedulerFlags &flags, int64_t batch, int64_t miniBatches);
absl::Status checkScheduler(const SchedulerFlags &flags, const plan::Plan &plan);
// What --swap-space says: bytes with their unit, or a number of GiB; 0 where it is not given. Refuses what is none, and
// what no preemption uses.
absl::StatusOr<uint64_t> swapSpace(const SchedulerFlags &flags);

} // namespace headrace::tools
