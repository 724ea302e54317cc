// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/SplitCachePlan.h"

namespace headrace::plan::test {
namespace {

void interleave(const Plan &plan, const Placement &placement, Extent &extent) {
  const Buffer &buffer = plan.buffers[extent.buffer];
  if (buffer.kind != BufferKind::Kv)
    return;
  extent.interleaved = true;
  extent.bytes = static_cast<uint64_t>(placement.kvBlocks) * plan.kvBlockBytes();
  extent.address = static_cast<uint64_t>(buffer.layer) * plan.kvBlockBytes();
}

} // namespace

void interleave(Plan &plan, const std::vector<int64_t> &blocks) {
  for (size_t p = 0; p < plan.placements.size(); ++p) {
    plan.placements[p].kvBlocks = blocks[p];
    for (Extent &extent : plan.placements[p].extents)
      interleave(plan, plan.placements[p], extent);
  }
  for (Schedule &schedule : plan.schedules)
    for (Operand &operand : schedule.operands)
      if (operand.arg == Arg::Kv) {
        const Extent &home = plan.placements[schedule.placement].extents[operand.buffer];
        operand.interleaved = true;
        operand.bytes = home.bytes;
        operand.address = home.address;
      }
}

} // namespace headrace::plan::test
