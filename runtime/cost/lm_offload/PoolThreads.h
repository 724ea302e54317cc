// SPDX-License-Identifier: Apache-2.0
//
// The one number that Headrace takes of LM-Offload's thread control: how many threads the pool has that computes on the
// CPU. More than help take cores, and memory bandwidth's turns, from those that copy.
//
//   threads      1      2      4      8     16        the fewest within 2% of the best, 1.00 s: 8
//   seconds   4.00   2.10   1.30   1.01   1.00
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/cost/lm_offload/Parallelism.h"

namespace headrace::cost {

inline constexpr double kPoolSlack = 0.02; // of the best time

// Of what a record has of up to `cores` threads; all cores where it has nothing of those. InvalidArgument: cores below
// 1, numbers of threads that do not ascend from 1 on, times that are not positive and finite.
absl::StatusOr<int64_t> poolThreads(absl::Span<const ThreadTime> record, int64_t cores);

} // namespace headrace::cost
