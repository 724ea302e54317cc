// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {

bool isResidual(const Plan &plan, uint32_t buffer) {
  return buffer < plan.buffers.size() && plan.buffers[buffer].kind == BufferKind::Residual;
}
bool residualsLeave(const Plan &plan) {
  return std::any_of(plan.buffers.begin(), plan.buffers.end(),
                     [](const Buffer &b) { return b.kind == BufferKind::Residual; });
}

bool residualsAreRight(const Plan &plan) {
  std::multiset<uint32_t> found, all;
  bool ok = true;
  for (const Buffer &b : plan.buffers)
    if (b.kind == BufferKind::Residual) {
      found.insert(b.index);
      ok &= b.layer == -1;
    }
  for (uint32_t i = 0; i < plan.miniBatches; ++i)
    all.insert(i);
  ok &= found.empty() || found == all;
  // One home, where no step may look.
  std::map<uint32_t, uint64_t> home;
  for (const Placement &p : plan.placements)
    for (const Extent &e : p.extents)
      if (isResidual(plan, e.buffer))
        ok &= e.space == Space::Host && !e.direct && !e.interleaved && e.bufferOffset == 0 &&
              e.bytes == plan.buffers[e.buffer].bytes &&
              home.try_emplace(e.buffer, e.address).first->second == e.address;
  for (const Schedule &s : plan.schedules)
    for (const Step &step : s.steps)
      if (step.kind == StepKind::Copy && isResidual(plan, s.operands[step.firstOperand].buffer))
        ok &= !step.dirtyOnly &&
              s.operands[step.firstOperand].bytes == plan.buffers[s.operands[step.firstOperand].buffer].bytes;
  return ok;
}

void addBrokenResidualRules(const Plan &plan, std::set<Rule> &rules) {
  const uint64_t bytes = static_cast<uint64_t>(plan.metaLayout.maxTokens * plan.model->hidden) * 4;
  for (const Buffer &b : plan.buffers) {
    const std::string name = plan.miniBatches > 1 ? "residual." + std::to_string(b.index) : "residual";
    if (b.kind == BufferKind::Residual && (b.bytes != model::alignUp(bytes) || b.name != name))
      rules.insert(Rule::Structure);
  }
}

bool isStream(const Plan &plan, const Step &step, const Operand &o) {
  return isResidual(plan, o.buffer) && plan.buffers[o.buffer].index == step.miniBatch && o.bufferOffset == 0 &&
         o.bytes == plan.buffers[o.buffer].bytes && o.space == Space::Device;
}

bool addsInPlace(const Plan &plan, const Schedule &s, const Step &step, const Operand &y) {
  if (y.arg != Arg::Y || !isResidual(plan, y.buffer))
    return false;
  for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
    if (const Operand &o = s.operands[k]; o.arg == Arg::Residual && o.buffer == y.buffer && o.address == y.address)
      return true;
  return false;
}

} // namespace headrace::plan::test
