// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::plan {

// Whose weights a compute step works with: the role of the unit that it reads a matrix or a norm of, Qkv where it reads
// none. A tied head reads the embedding's table and is the head all the same. `layout`: of the plan's model.
model::UnitRole unitOf(const Plan &plan, const model::WeightLayout &layout, const Schedule &schedule, const Step &step);

} // namespace headrace::plan
