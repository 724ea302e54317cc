// SPDX-License-Identifier: Apache-2.0
//
// The cut of wrap-around for one iteration: durations and copies put together for algorithms::planCut.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/evaluate/MovedBuffers.h"
#include "compiler/evaluate/Prices.h"
#include "passes/algorithms/PlanCut.h"

namespace headrace::compiler {

// What algorithms::planCut is asked, with the durations that it points to.
struct WrapAround {
  WrapAround() = default;
  WrapAround(WrapAround &&) = default; // the problem points into the durations: a copy would point into another's
  algorithms::CutProblem problem;
  // By unit of the problem: a cut from this byte on takes all of it. A copy of norms of heads alone would be waited for
  // by the step that reads the rest, for nothing.
  std::vector<uint64_t> wholeFrom;
  std::vector<std::vector<uint64_t>> durations; // of all buckets, by time ascending; the problem weighs some of them
};

// `buckets` are those that the iteration's schedule will be used for. The prices must outlive the problem.
absl::StatusOr<WrapAround> wrapAroundOf(const Steps &steps, const Homes &homes,
                                        const std::vector<cost::Bucket> &buckets, Prices &prices);
absl::StatusOr<algorithms::Cut> planWrapAround(const Steps &steps, const Homes &homes,
                                               const std::vector<cost::Bucket> &buckets, Prices &prices);

// The residency of an iteration of a class with its cut decided, for those that follow as well; `planned`: by
// planWrapAround, where the residency leaves it open. `brings`: something is brought.
absl::Status decideCut(plan::IterationClass iterationClass, bool brings,
                       const std::function<absl::StatusOr<algorithms::Cut>()> &planned,
                       algorithms::Residency &residency);

} // namespace headrace::compiler
