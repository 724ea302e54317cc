// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/model/WeightLayout.h"
#include "tests/unit/plan/OracleMemory.h"

namespace headrace::plan::test {

bool miniBatchesAreRight(const Plan &plan) {
  const uint32_t count = plan.miniBatches;
  if (count < 1 || count > 64 || plan.goal.miniBatches != count)
    return false;
  std::map<std::pair<int32_t, uint32_t>, int> caches;
  for (const Buffer &buffer : plan.buffers)
    if (buffer.kind == BufferKind::Kv)
      ++caches[{buffer.layer, buffer.index}];
  bool ok = caches.size() == static_cast<size_t>(plan.model->layers) * count;
  for (const auto &[which, times] : caches)
    ok &= times == 1 && which.second < count;
  for (const Schedule &s : plan.schedules) {
    for (const Local &local : s.locals)
      ok &= local.buffer.index < count;
    for (const Step &step : s.steps) {
      ok &= step.miniBatch < count && (step.kind != StepKind::Publish || step.miniBatch == 0);
      if (step.kind != StepKind::Copy)
        continue;
      const uint32_t copied = s.operands[step.firstOperand].buffer;
      const bool cache = copied < plan.buffers.size() &&
                         (plan.buffers[copied].kind == BufferKind::Kv || plan.buffers[copied].kind == BufferKind::Act);
      if (copied >= plan.buffers.size() || isMeta(plan, copied))
        continue; // OracleCpu.cpp
      ok &= step.miniBatch == (cache || isResidual(plan, copied) ? plan.buffers[copied].index : 0);
    }
  }
  return ok;
}

uint64_t metaArraysBytes(const Plan &plan) {
  kernels::IterationMeta of;
  kernels::initMeta(plan.metaLayout, &of);
  return of.blockTable; // behind all other arrays
}

bool ioIsRight(const Plan &plan) {
  std::map<uint32_t, uint64_t> io; // bytes
  for (const Buffer &buffer : plan.buffers)
    if (buffer.kind == BufferKind::Io)
      io[buffer.index] = buffer.bytes;
  const uint64_t count = plan.miniBatches, sequences = static_cast<uint64_t>(plan.metaLayout.maxSequences);
  const auto slots = static_cast<uint64_t>(plan.kvBlocks * plan.blockTokens);
  // What each has of one by itself, but for the alignment of the whole.
  const uint64_t tables = sequences * static_cast<uint64_t>(plan.metaLayout.maxBlocksPerSequence) * 4;
  bool ok = io[0] == model::alignUp(count * (metaArraysBytes(plan) + tables)) && io[2] >= count * sequences * 4;
  for (const auto &[index, least] : {std::pair(1u, sequences * 4), std::pair(3u, slots * 4)})
    ok &= io[index] / count >= least && (count == 1 || io[index] % (count * model::kAlign) == 0);
  return ok;
}

bool publishesAll(const Plan &plan, const Schedule &s) {
  std::set<uint32_t> sampled;
  for (const Step &step : s.steps) {
    if (step.kind == StepKind::Compute && step.op == kernels::Op::Sample)
      sampled.insert(step.miniBatch);
    if (step.kind == StepKind::Publish && plan.model->hasHead() && sampled.size() != plan.miniBatches)
      return false;
  }
  return true;
}

} // namespace headrace::plan::test
