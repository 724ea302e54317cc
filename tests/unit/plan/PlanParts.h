// SPDX-License-Identifier: Apache-2.0
//
// Steps and transitions of plans that are put together by hand.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::plan::test {

inline constexpr int kNever = -1; // "after no compute step"

// A copy before it is a step: bytes of a unit, a cache or activation blocks, from the slab to an address, after the
// compute step `after` has ended; or, of a tail or a residual, from there to the slab.
struct PlannedCopy {
  uint32_t unit = 0;
  uint64_t offset = 0, bytes = 0, address = 0, hostAddress = 0;
  int after = kNever;
  int neededBy = 0; // a compute step; from their number on, one of the next iteration
  bool resizable = false;
  bool interleaved = false; // where it goes
  bool toHost = false, dirtyOnly = false;
};

// The slab of these plans has every unit, one behind the other.
uint64_t hostAddress(const Plan &plan, uint32_t unit);
// A layer's activation blocks; kNone where there are none.
uint32_t actBuffer(const Plan &plan, int64_t layer, uint32_t miniBatch);
void addStep(Schedule &s, Step step, const std::vector<Operand> &operands);
void addCopy(const Plan &plan, Schedule &s, const PlannedCopy &c);
// The edges that a schedule must have, and no others, from what its steps read and write.
void connect(const Plan &plan, Schedule &s);
bool isDirty(const State &state);
// By placement, bucket, blocks and phase.
void sortVariants(Plan &plan);
// The end of the last step, the compute lane's sum, that of the busier of the copies' lanes.
std::tuple<uint64_t, uint64_t, uint64_t> times(const Schedule &s, const std::vector<uint64_t> &durations);
void addTransition(Plan &plan, Schedule s, uint32_t from, uint32_t to);
// Copies to the homes that `to` has on the device and `from` has not, of caches the blocks.
void addSwitch(Plan &plan, uint32_t from, uint32_t to);

} // namespace headrace::plan::test
