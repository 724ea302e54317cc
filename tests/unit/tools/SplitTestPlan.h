// SPDX-License-Identifier: Apache-2.0
//
// testPlan() with its caches split, R = 1: of 5 blocks of 256 bytes a layer the first is on the device, 4 are at home
// on the host. Layer 1's tail is brought in each iteration, layer 0's append writes its rows to the host as well.
//
//   ns        0         100                          1024      1084      1124     1174
//   compute   embed 20 | L0 qkv 40 | L0 append 40 | ..stall.. | L1 qkv 60 | head 40 | publish
//   h2d       L1 kv 1024 (4 blocks: 1024 bytes)               |           | L1 qkv 90
#pragma once

#include "tests/unit/tools/TestPlan.h"

namespace headrace::tools {

inline constexpr uint32_t kNoTails = 0, kTails = 1; // variants, in the order of the blocks that may be in use

inline plan::Plan splitTestPlan() {
  using namespace plan;
  constexpr uint64_t kBlock = 256;
  Plan p = testPlan();
  p.kvEncoding = model::DType::F16; // 2 x 16 rows x 4 tokens x 2 bytes = kBlock
  p.hostBytes = 1024 + 2 * 4 * kBlock;
  Placement &placement = p.placements[0];
  placement.kvBlocks = 5;
  std::vector<Extent> extents;
  uint64_t base = 0;
  for (const Extent &e : placement.extents) {
    const Buffer &buffer = p.buffers[e.buffer];
    if (buffer.kind != BufferKind::Kv) {
      extents.push_back(e);
      continue;
    }
    const auto layer = static_cast<uint64_t>(buffer.layer);
    base = layer == 0 ? e.address : base;
    extents.push_back({e.buffer, Space::Device, false, 0, kBlock, base + layer * kBlock, /*interleaved=*/true});
    extents.push_back({e.buffer, Space::Host, /*direct=*/true, kBlock, 4 * kBlock, 1024 + layer * 4 * kBlock});
  }
  placement.extents = extents;

  Schedule &s = p.schedules[0];
  const auto own = [&](Step &step, std::vector<Operand> operands) {
    step.firstOperand = static_cast<uint32_t>(s.operands.size());
    step.operandCount = static_cast<uint32_t>(operands.size());
    s.operands.insert(s.operands.end(), operands.begin(), operands.end());
  };
  const uint32_t kv0 = p.kvBuffer(0), kv1 = p.kvBuffer(1);
  Step &tail = s.steps[0], &append = s.steps[3];
  tail.resizable = true;
  tail.linkBytes = 4 * kBlock;
  own(tail, {{kv1, Space::Host, Access::Read, Arg::Source, kBlock, 4 * kBlock, 1024 + 4 * kBlock},
             {kv1, Space::Device, Access::Write, Arg::Destination, kBlock, 4 * kBlock, 0}});
  append.op = kernels::Op::RopeAppend;
  append.direct = true;
  append.linkBytes = 8;
  own(append, {{kv0, Space::Host, Access::ReadWrite, Arg::KvHome, kBlock, 4 * kBlock, 1024}});
  Variant &tails = p.variants[0];
  tails.durationsNs[0] = 4 * kBlock;
  tails.predictedNs = 1174; // 1024 + 60 + 90
  tails.linkAloneNs = 1114; // 1024 + 90

  // With only block 0 in use: no copy of the tail, nothing to write to the host.
  Schedule without = s;
  without.name += ", no tails";
  without.kvBlocks = 1;
  without.steps.erase(without.steps.begin());
  without.steps[2].direct = false;
  without.steps[2].linkBytes = 0;
  without.steps[2].operandCount = 0;
  without.edges = {{3, 4, EdgeKind::War}};
  Variant noTails = tails;
  noTails.schedule = 1;
  noTails.durationsNs.erase(noTails.durationsNs.begin());
  noTails.predictedNs = 250; // 160 + 90
  noTails.linkAloneNs = 90;
  p.schedules.push_back(without);
  p.variants.insert(p.variants.begin(), noTails);
  return p;
}

} // namespace headrace::tools
