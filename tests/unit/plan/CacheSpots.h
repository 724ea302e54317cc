// SPDX-License-Identifier: Apache-2.0
//
// Where in a plan caches are copied, appended to and read, for mutations.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan::test {

bool isCache(const Plan &plan, uint32_t buffer);
// Some cache has blocks at a place of their own: interleaved, or at home on the host.
bool isSplit(const Plan &plan);

// A step of a plan, with its schedule.
struct Spot {
  uint32_t schedule, step;
};
Schedule &scheduleAt(Plan &plan, const Spot &spot);
Step &stepAt(Plan &plan, const Spot &spot);
// The step's operand for this; null where it has none.
Operand *part(Plan &plan, const Spot &spot, Arg arg);
// What the step's mini-batch has of a buffer, as an operand; of the output all.
Operand ioRange(Plan &plan, const Spot &step, Io which, Arg arg, Access access);
template <typename F> std::vector<Spot> spots(Plan &plan, F holds) {
  std::vector<Spot> out;
  for (uint32_t i = 0; i < plan.schedules.size(); ++i)
    for (uint32_t k = 0; k < plan.schedules[i].steps.size(); ++k)
      if (holds(Spot{i, k}))
        out.push_back({i, k});
  return out;
}
// Steps that have an operand of a cache for this.
std::vector<Spot> spotsOf(Plan &plan, Arg arg);
// Copies of caches to the device; those of them that come before an append of their layer; those to homes.
std::vector<Spot> cacheCopies(Plan &plan);
std::vector<Spot> copiesBeforeAppend(Plan &plan);
std::vector<Spot> copiesToHomes(Plan &plan);
// Copies of caches to the host, of iterations and of transitions.
std::vector<Spot> evicts(Plan &plan);
std::vector<Spot> flushes(Plan &plan);
// A copy's two operands.
Operand &source(Plan &plan, const Spot &copy);
inline Operand &destination(Plan &plan, const Spot &copy) { return (&source(plan, copy))[1]; }

// The nearest step after a copy in which this layer's rows are appended; kNone where there is none.
uint32_t appendBehind(Plan &plan, const Spot &copy);

// A new slot behind everything, for copies that meet nothing else on the device.
uint64_t newSlot(Plan &plan, uint32_t placement, uint64_t bytes);
// A copy as step number `at`. It waits for what its lane has waited for; durations and their sums follow.
void insertCopy(Plan &plan, uint32_t schedule, uint32_t at, Step step, const Operand &from, const Operand &to);
// A step that computes, behind another, in no time.
void insertStep(Plan &plan, const Spot &before, Step step, const std::vector<Operand> &operands);
// Without a step, and the edges from and to it.
void eraseStep(Plan &plan, const Spot &spot);
// Once more what a copy brings, as step number `at`, to a slot of its own, whose address it returns.
uint64_t copyAside(Plan &plan, const Spot &copy, uint32_t at);

} // namespace headrace::plan::test
