// SPDX-License-Identifier: Apache-2.0
//
// Where in a plan activation blocks are kept and used, for mutations.
#pragma once

#include <initializer_list>
#include <vector>

#include "kernels/Kernels.h"
#include "tests/unit/plan/CacheSpots.h"
#include "tests/unit/plan/Mutations.h"

namespace headrace::plan::test {

bool isActs(const Plan &plan, uint32_t buffer);
std::vector<uint32_t> actBuffers(const Plan &plan);
// Compute steps with one of these ops.
std::vector<Spot> stepsOf(Plan &plan, std::initializer_list<kernels::Op> ops);
// The first step with this op of the layer and mini-batch of another.
Spot besideIt(Plan &plan, const Spot &spot, kernels::Op op);
// An operand is all of a buffer, where it is at home.
void lieAtHome(const Plan &plan, const Schedule &s, Operand &o, uint32_t buffer);
// A compute step stands elsewhere, or nowhere; durations follow. Edges go with their steps; or are made anew, so that
// only what the step may not do gives it away.
void moveCompute(Plan &plan, const Spot &spot, uint32_t to, bool anew);
void eraseCompute(Plan &plan, const Spot &spot, bool anew);
// Where an iteration brings what rebuild_kv has this operand of: before the copy in order, or without an edge from
// it.
bool rebuildBeforeCopyOf(Plan &plan, Random &random, Arg brought);
template <Arg kBrought> bool rebuildBeforeCopy(Plan &plan, Random &random) {
  return rebuildBeforeCopyOf(plan, random, kBrought);
}
// Other transients of a schedule that are as large, those of the same name if there are any.
std::vector<uint32_t> localsLike(const Plan &plan, const Schedule &s, uint32_t than);
void useLocal(const Plan &plan, const Schedule &s, Operand &o, uint32_t local);

} // namespace headrace::plan::test
