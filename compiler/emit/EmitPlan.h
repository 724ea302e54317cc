// SPDX-License-Identifier: Apache-2.0
//
// IR in the offsets phase -> the plain values of a plan: the placement's extents and slots, schedules with their
// operands, edges and transients, and the states at their edges.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/evaluate/PlanWriter.h"
#include "ir/Headrace.h"
#include "runtime/cost/CostModel.h"

namespace headrace::compiler {

// A schedule and what each of its steps is to the cost model; none: no kernel.
struct EmittedSchedule {
  uint32_t schedule = 0; // into Plan::schedules
  std::vector<std::optional<cost::OpSite>> sites;
};

// Homes and slots as the iteration declares them; all iterations of a placement declare the same. Name, interval and
// so on are `described`'s.
uint32_t addPlacement(ir::IterationOp iteration, plan::Placement described, PlanWriter &writer);
// Refuses an op that no plan can say, by its name.
absl::StatusOr<EmittedSchedule> addSchedule(ir::IterationOp iteration, const std::string &name, uint32_t placement,
                                            PlanWriter &writer);

} // namespace headrace::compiler
