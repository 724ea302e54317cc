// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/value/StepUnits.h"

#include "kernels/Kernels.h"

namespace headrace::plan {

model::UnitRole unitOf(const Plan &plan, const model::WeightLayout &layout, const Schedule &schedule,
                       const Step &step) {
  model::UnitRole unit = model::UnitRole::Qkv;
  for (uint32_t i = step.firstOperand; i < step.firstOperand + step.operandCount; ++i) {
    const Operand &operand = schedule.operands[i];
    if ((operand.arg == Arg::Weight || operand.arg == Arg::NormWeights) && operand.buffer < plan.buffers.size() &&
        plan.buffers[operand.buffer].kind == BufferKind::Weight)
      unit = layout.units[plan.buffers[operand.buffer].index].role;
  }
  return step.op == kernels::Op::Linear && unit == model::UnitRole::Embedding ? model::UnitRole::Head : unit;
}

} // namespace headrace::plan
