// SPDX-License-Identifier: Apache-2.0
//
// A plan by hand whose caches grow, on pages of 256 bytes.
#pragma once

#include "runtime/plan/Plan.h"

namespace headrace::plan::test {

// "three placements with transitions between them" of variedPlans(), of which the third ("paper", layers 0, 1 and 3
// offloaded, slots where 0 and 1 have their homes) has one block more, where layer 3 has its home in the first.
Plan growingPlan();

} // namespace headrace::plan::test
