// SPDX-License-Identifier: Apache-2.0
#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {
namespace {

bool isFirst(const model::ModelSpec &m) { return m.stage.first == 0; }
bool isLast(const model::ModelSpec &m) { return m.stage.of == 0 || m.stage.first + m.layers == m.stage.of; }

} // namespace

bool stageIsRight(const Plan &plan, const model::WeightLayout &layout) {
  std::multiset<uint32_t> found, expected;
  for (const Buffer &b : plan.buffers)
    if (b.kind == BufferKind::Weight)
      found.insert(b.index);
  for (uint32_t unit = 0; unit < layout.units.size(); ++unit)
    if ((unit > 0 || isFirst(plan.model)) && (unit + 1 < layout.units.size() || isLast(plan.model)))
      expected.insert(unit);
  return found == expected && (residualsLeave(plan) || (isFirst(plan.model) && isLast(plan.model)));
}

bool stageStepsAreRight(const Plan &plan, const Schedule &s) {
  std::vector<uint32_t> homes; // that a publish reads, mini-batch by mini-batch
  if (!isLast(plan.model))
    for (uint32_t miniBatch = 0; miniBatch < plan.miniBatches; ++miniBatch)
      for (uint32_t i = 0; i < plan.buffers.size(); ++i)
        if (isResidual(plan, i) && plan.buffers[i].index == miniBatch)
          homes.push_back(i);
  bool ok = true;
  std::set<uint32_t> haveIds; // mini-batches
  for (const Step &step : s.steps) {
    if (step.kind == StepKind::Compute) {
      ok &= isFirst(plan.model) || step.op != kernels::Op::Embed;
      ok &= isLast(plan.model) || (step.op != kernels::Op::GatherRows && step.op != kernels::Op::Sample);
      ok &= (!isFirst(plan.model) && isLast(plan.model)) || step.op != kernels::Op::KeepIds;
      if (step.op == kernels::Op::KeepIds)
        haveIds.insert(step.miniBatch);
      ok &= step.op != kernels::Op::Sample || isFirst(plan.model) || haveIds.contains(step.miniBatch);
    }
    if (step.kind != StepKind::Publish)
      continue;
    std::vector<uint32_t> read;
    for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
      if (const Operand &o = s.operands[k]; o.arg == Arg::Residual) {
        read.push_back(o.buffer);
        ok &= o.space == Space::Host && o.access == Access::Read && o.bufferOffset == 0 &&
              o.bytes == plan.buffer(s, o.buffer).bytes;
      }
    ok &= read == homes;
  }
  return ok;
}

bool publishesTheLast(const Plan &plan, const Schedule &s) {
  bool published = false, ok = true;
  for (const Step &step : s.steps) {
    for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
      if (const Operand &o = s.operands[k]; step.kind == StepKind::Compute && isResidual(plan, o.buffer))
        ok &= !published || isLast(plan.model) || o.access == Access::Read;
    published |= step.kind == StepKind::Publish;
  }
  return ok;
}

bool homesAreLeftInTime(const Plan &plan, const Schedule &s) {
  if (plan.model->stage.of == 0)
    return true;
  const std::vector<StepSet> before = ancestors(s);
  bool ok = true;
  for (uint32_t publish = 0; publish < s.steps.size(); ++publish)
    for (uint32_t i = 0; i < s.steps.size() && s.steps[publish].kind == StepKind::Publish; ++i)
      for (uint32_t k = s.steps[i].firstOperand; k < s.steps[i].firstOperand + s.steps[i].operandCount; ++k)
        if (const Operand &o = s.operands[k];
            isResidual(plan, o.buffer) && o.space == Space::Host && o.access != Access::Read)
          ok &= before[publish][i];
  return ok;
}

} // namespace headrace::plan::test
