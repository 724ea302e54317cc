// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/DirectBytes.h"

#include <algorithm>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::core {

namespace {

const kernels::IterationMeta &metaAt(const kernels::IterationMeta &first, uint64_t offset) {
  return *reinterpret_cast<const kernels::IterationMeta *>(reinterpret_cast<const char *>(&first) + offset);
}

} // namespace

uint64_t DirectBytes::read(const kernels::IterationMeta &first) const {
  return readPerRow * static_cast<uint64_t>(metaAt(first, metaOffset).numTokens);
}

uint64_t DirectBytes::written(const kernels::IterationMeta &first) const {
  if (writtenPerRow == 0)
    return 0;
  const kernels::IterationMeta &meta = metaAt(first, metaOffset);
  const int32_t *slots = meta.array<int32_t>(meta.kvSlot);
  const auto rows = std::count_if(slots, slots + meta.numTokens, [&](int32_t slot) {
    return static_cast<uint64_t>(slot) >= firstSlot && static_cast<uint64_t>(slot) < endSlot;
  });
  return writtenPerRow * static_cast<uint64_t>(rows);
}

DirectBytes directBytes(const plan::Plan &plan, const plan::Schedule &schedule, const plan::Step &step) {
  DirectBytes out;
  if (step.kind != plan::StepKind::Compute || !step.direct)
    return out;
  out.metaOffset = step.miniBatch * kernels::metaFixedBytes(plan.metaLayout);
  const model::ModelSpec &spec = plan.model;
  if (step.op == kernels::Op::Embed)
    out.readPerRow =
        static_cast<uint64_t>(spec.hidden) * (spec.learnedPositions ? 2 : 1) * model::dtypeBytes(spec.dtype);
  if (step.op == kernels::Op::FetchRows) // what attention on the CPU left on the host
    out.readPerRow = static_cast<uint64_t>(spec.qRows()) * model::dtypeBytes(plan.activationDtype);
  if (step.op == kernels::Op::RopeAppend)
    for (uint32_t o = 0; o < step.operandCount; ++o)
      if (const plan::Operand &home = schedule.operands[step.firstOperand + o]; home.arg == plan::Arg::KvHome) {
        out.writtenPerRow = plan.kvBlockBytes() / static_cast<uint64_t>(plan.blockTokens);
        out.firstSlot = home.bufferOffset / out.writtenPerRow;
        out.endSlot = (home.bufferOffset + home.bytes) / out.writtenPerRow;
      }
  if (step.op == kernels::Op::ActAppend) {
    const auto tokens = static_cast<uint64_t>(plan.blockTokens);
    out.writtenPerRow = plan.actBlockBytes() / tokens;
    out.firstSlot = static_cast<uint64_t>(plan.kvBlocks) * tokens;
    out.endSlot = out.firstSlot + static_cast<uint64_t>(plan.actBlocks) * tokens;
  }
  return out;
}

std::vector<DirectBytes> directBytes(const plan::Plan &plan, const plan::Schedule &schedule) {
  std::vector<DirectBytes> all;
  for (const plan::Step &step : schedule.steps) {
    const DirectBytes one = directBytes(plan, schedule, step);
    if (!one.any())
      continue;
    const auto same = std::find_if(all.begin(), all.end(), [&](const DirectBytes &other) {
      return one.metaOffset == other.metaOffset && (one.writtenPerRow == 0 || other.writtenPerRow == 0 ||
                                                    (one.firstSlot == other.firstSlot && one.endSlot == other.endSlot));
    });
    if (same == all.end()) {
      all.push_back(one);
      continue;
    }
    same->firstSlot = std::max(same->firstSlot, one.firstSlot); // 0 of what writes nothing
    same->endSlot = std::max(same->endSlot, one.endSlot);
    same->readPerRow += one.readPerRow;
    same->writtenPerRow += one.writtenPerRow;
  }
  return all;
}

} // namespace headrace::core
