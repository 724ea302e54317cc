// SPDX-License-Identifier: Apache-2.0
//
// IR in the offsets phase -> the plain values of a plan: buffers, the placement's extents and slots, schedules with
// their operands, edges and transients, the states at their edges, and the transitions between those.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choice/Resolve.h"
#include "ir/Headrace.h"
#include "runtime/model/WeightLayout.h"
#include "runtime/plan/Plan.h"

namespace headrace::compiler {

// A schedule and what each of its steps is to the cost model; none: no kernel.
struct EmittedSchedule {
  uint32_t schedule = 0; // into Plan::schedules
  std::vector<std::optional<cost::OpSite>> sites;
};

class PlanEmitter {
public:
  // Fills in the plan's buffers and the empty state.
  PlanEmitter(const model::WeightLayout &layout, const Target &target, plan::Plan &plan);

  // Homes and slots as the iteration declares them; all iterations of a placement declare the same. Name, interval and
  // so on are `described`'s.
  uint32_t addPlacement(ir::IterationOp iteration, plan::Placement described);
  // Refuses an op that no plan can say, by its name.
  absl::StatusOr<EmittedSchedule> addSchedule(ir::IterationOp iteration, const std::string &name, uint32_t placement);
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
  void addIoHome(plan::Placement &placement, ir::IoOp io) const;
  uint32_t stateOf(uint32_t placement, std::vector<plan::Content> contents);

  const Target &target_;
  plan::Plan &plan_;
};

bool isDirty(const plan::State &state); // has a dirty content
bool sameContents(const std::vector<plan::Content> &a, const std::vector<plan::Content> &b);
// Whether every byte of `needed` is in `state` at the same address; of a dirty one nothing may be dropped, so it
// contains only itself.
bool contains(const plan::State &state, const plan::State &needed);

} // namespace headrace::compiler
