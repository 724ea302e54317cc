// SPDX-License-Identifier: Apache-2.0
//
// What of a plan follows from other values of it: its buffers, the states at the edges of schedules, and schedules of
// copies from one state, or one placement's homes, to another.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/choice/Resolve.h"
#include "passes/algorithms/SlabAddresses.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/value/BufferIndex.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

// The plan's buffer that a movable is; `unit`: of what is loaded, else -1.
uint32_t planBufferOf(const plan::BufferIndex &index, const algorithms::SlabKey &of, int32_t unit);

class PlanWriter {
public:
  // Fills in the plan's buffers and the empty state.
  PlanWriter(const model::WeightLayout &layout, const Target &target, plan::Plan &plan);

  plan::Plan &plan() { return plan_; }
  // The state of the placement that has these; 0 where there are none.
  uint32_t stateOf(uint32_t placement, std::vector<plan::Content> contents);
  // A schedule of copies that turns one state of a placement into another: what is dirty in the first is written back,
  // then the copies that the second needs, each in the order of their addresses; what the first state holds already is
  // left alone. To the empty state: written back only.
  uint32_t addTransition(uint32_t fromState, uint32_t toState);
  // A schedule of copies to the homes that the one placement has on the device and the other has not, in the order of
  // their addresses, whatever slots hold; kNone if there are none.
  uint32_t addSwitch(uint32_t fromPlacement, uint32_t toPlacement);

private:
  // Of bytes that are at home in host memory in one placement: to the device, or from there.
  void addCopy(plan::Schedule &schedule, uint32_t homePlacement, const plan::Content &content, bool toDevice = true);
  // The extent that has the byte; null: none has.
  static const plan::Extent *homeOf(const plan::Placement &placement, uint32_t buffer, uint64_t offset);

  plan::Plan &plan_;
};

bool isDirty(const plan::State &state); // has a dirty content
bool sameContents(const std::vector<plan::Content> &a, const std::vector<plan::Content> &b);
// Whether every byte of `needed` is in `state` at the same address; of a dirty one nothing may be dropped, so it
// contains only itself.
bool contains(const plan::State &state, const plan::State &needed);

} // namespace headrace::compiler
