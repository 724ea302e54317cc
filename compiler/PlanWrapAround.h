// SPDX-License-Identifier: Apache-2.0
//
// The cut of wrap-around for one iteration: durations and copies put together for algorithms::planCut.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "compiler/Prices.h"
#include "ir/Headrace.h"
#include "passes/algorithms/PlanCut.h"

namespace headrace::compiler {

// `iteration` is in the homes phase; `shapes` are those that its schedule will be used for, of which a few are weighed;
// `slots` is InsertPrefetch's option.
absl::StatusOr<algorithms::Cut> planWrapAround(ir::IterationOp iteration, const std::vector<cost::Shape> &shapes,
                                               int64_t slots, Prices &prices);

} // namespace headrace::compiler
