// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plan/GrowingPlan.h"

#include "runtime/model/ModelSpec.h"
#include "tests/unit/plan/MakePlan.h"

namespace headrace::plan::test {

Plan growingPlan() {
  Plan plan;
  for (const NamedOptions &named : variedPlans())
    if (named.options.switches)
      plan = makePlan(named.options);
  const uint64_t page = 256, block = plan.kvBlockBytes(); // 2 x 16 rows x 16 tokens x 4 bytes: whole pages
  uint64_t free = 0;                                      // layer 3's home
  for (uint32_t unit = 0; unit < plan.kvBuffer(0); ++unit)
    if (plan.buffers[unit].name == "layers.3.qkv")
      free = plan.placements[0].extents[unit].address;
  plan.pageBytes = page;
  uint64_t address = plan.arenaBytes;
  for (int64_t layer = 0; layer < plan.model->layers; ++layer) {
    const uint32_t kv = plan.kvBuffer(layer);
    address += page; // mapped to nothing
    const uint64_t own = plan.buffers[kv].bytes;
    plan.aliases.push_back({address, plan.placements[0].extents[kv].address, own});
    plan.aliases.push_back({address + own, free, block});
    plan.buffers[kv].bytes = own + block;
    for (Placement &placement : plan.placements) {
      placement.extents[kv].address = address;
      placement.extents[kv].bytes = own + block;
    }
    for (Schedule &s : plan.schedules)
      for (Operand &operand : s.operands)
        if (operand.buffer == kv) {
          operand.address = address;
          operand.bytes = own + block;
        }
    address += own + block;
    free += block;
  }
  plan.kvBlocks += 1;
  plan.placements[2].kvBlocks = plan.kvBlocks;
  return plan;
}

} // namespace headrace::plan::test
