// SPDX-License-Identifier: Apache-2.0
#include "tools/report/MovedBytes.h"

#include "runtime/core/GraphSteps.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::tools {

bool movesResidual(const plan::Plan &plan, const plan::Schedule &schedule, const plan::Step &step) {
  return step.kind == plan::StepKind::Copy &&
         plan.buffer(schedule, schedule.operands[step.firstOperand].buffer).kind == plan::BufferKind::Residual;
}

uint64_t movedBytes(const plan::Plan &plan, const plan::Schedule &schedule, uint32_t step, int64_t newTokens) {
  const uint64_t all = schedule.steps[step].linkBytes;
  if (!movesResidual(plan, schedule, schedule.steps[step]))
    return all;
  const absl::StatusOr<core::SizedCopy> copy = core::sizedCopy(plan, schedule, step);
  return copy.ok() ? core::bytesInUse(*copy, core::InUse{.rows = newTokens}) : all;
}

plan::LinkBytes movedBytes(const plan::Plan &plan, const plan::Variant &variant) {
  const plan::Schedule &schedule = plan.schedules[variant.schedule];
  plan::LinkBytes bytes = plan::linkBytes(schedule);
  for (uint32_t i = 0; i < schedule.steps.size(); ++i)
    if (const plan::Step &step = schedule.steps[i]; movesResidual(plan, schedule, step))
      (plan::toHost(step.lane) ? bytes.d2h : bytes.h2d) -=
          step.linkBytes - movedBytes(plan, schedule, i, variant.newTokens);
  return bytes;
}

} // namespace headrace::tools
