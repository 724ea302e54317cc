// SPDX-License-Identifier: Apache-2.0
//
// What is wrong with a plan, found by brute force: memory as an array of 64-byte granules, a matrix of which step comes
// after which, every edge left out once. Slow, for the small plans of MakePlan.h, and written apart from PlanVerifier
// so that the two agree only if both are right.
#pragma once

#include <set>

#include "runtime/plan/proof/PlanVerifier.h"

namespace headrace::plan::test {

// Every rule that the plan breaks; only Structure if its structure is so wrong that nothing else can be told. Ranges
// must begin and end at multiples of 64 bytes.
std::set<Rule> brokenRules(const Plan &plan);

// The largest sum of live bytes of a schedule, as PlanVerifier.h defines it, from the same arrays.
uint64_t liveBytesByBruteForce(const Plan &plan, uint32_t schedule);

} // namespace headrace::plan::test
