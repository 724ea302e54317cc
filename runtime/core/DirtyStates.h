// SPDX-License-Identifier: Apache-2.0
//
// What of a plan keeps homes of KV on the host current with copies, and so may leave them behind for a while.
#pragma once

#include <algorithm>

#include "runtime/plan/value/Plan.h"

namespace headrace::core {

// Some content's home may be behind it: such a state is left only by what has it as its entry state.
inline bool isDirty(const plan::State &state) {
  return std::any_of(state.contents.begin(), state.contents.end(),
                     [](const plan::Content &content) { return content.dirty; });
}

// A schedule after which homes are current, or dirty contents ahead of them, only if all of it has run: it copies
// blocks to the host, or leaves such contents.
inline bool writesBack(const plan::Plan &plan, const plan::Schedule &schedule) {
  return isDirty(plan.states[schedule.exitState]) ||
         std::any_of(schedule.steps.begin(), schedule.steps.end(), [&](const plan::Step &step) {
           return step.kind == plan::StepKind::Copy && plan::toHost(step.lane) &&
                  plan.buffer(schedule, schedule.operands[step.firstOperand].buffer).kind == plan::BufferKind::Kv;
         });
}

// A launch's own rows decide what some copy of the plan copies: blocks that they are written to
// (plan::Step::dirtyOnly), or residual streams.
inline bool copiesByRows(const plan::Plan &plan) {
  return plan.residualsLeave() ||
         std::any_of(plan.schedules.begin(), plan.schedules.end(), [](const plan::Schedule &schedule) {
           return std::any_of(schedule.steps.begin(), schedule.steps.end(),
                              [](const plan::Step &step) { return step.dirtyOnly; });
         });
}

} // namespace headrace::core
