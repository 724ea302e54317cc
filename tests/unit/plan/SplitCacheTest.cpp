// SPDX-License-Identifier: Apache-2.0
//
// Plans whose caches are interleaved: what the verifier accepts, and one plan wrong in one way at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/plan/proof/PlanVerifier.h"
#include "runtime/plan/value/BlockRuns.h"
#include "tests/unit/plan/BrokenPlan.h"
#include "tests/unit/plan/MakePlan.h"
#include "tests/unit/plan/SplitCachePlan.h"

namespace headrace::plan {
namespace {

using test::Broken;
using test::expectAccepted;
using test::expectRefused;

// Three placements with transitions between them, four layers, 3 blocks of 2 x 16 rows x 16 tokens x 4 bytes = 2048
// bytes a layer: a stride of 8192, caches in [0, 24576) of the arena. The second placement has only two blocks: its
// caches are in [0, 16384).
Plan interleavedPlan() {
  for (const test::NamedOptions &named : test::variedPlans())
    if (named.options.switches) {
      Plan plan = test::makePlan(named.options);
      test::interleave(plan, {3, 2, 3});
      return plan;
    }
  std::abort();
}

Extent &cache(Plan &p, uint32_t placement, int64_t layer) { return p.placements[placement].extents[p.kvBuffer(layer)]; }
// The cache among the operands of the first step of layer 0 with this op, in schedule 0.
Operand &cacheOf(Plan &p, kernels::Op op) {
  Schedule &s = p.schedules[0];
  for (const Step &step : s.steps)
    if (step.kind == StepKind::Compute && step.op == op && step.layer == 0)
      for (uint32_t k = step.firstOperand; k < step.firstOperand + step.operandCount; ++k)
        if (s.operands[k].arg == Arg::Kv)
          return s.operands[k];
  std::abort();
}

TEST(SplitCache, AcceptsInterleavedCaches) {
  const Plan plan = interleavedPlan();
  EXPECT_EQ(plan.kvBlockBytes(), 2048u);
  EXPECT_EQ(plan.kvStride(), 8192u);
  expectAccepted(plan, "interleaved");
  for (const test::NamedOptions &named : test::variedPlans()) {
    Plan varied = test::makePlan(named.options);
    test::interleave(varied, std::vector<int64_t>(varied.placements.size(), varied.kvBlocks));
    expectAccepted(varied, named.name);
  }
}

// Of layer 3 the last block ends at 3 x 2048 + 2 x 8192 + 2048.
TEST(SplitCache, CountsAnInterleavedCacheByItsBlocks) {
  const Plan plan = interleavedPlan();
  EXPECT_EQ(addressEnd(plan, plan.placements[0].extents[plan.kvBuffer(3)]), 24576u);
  EXPECT_EQ(deviceBytes(plan, 0).kv, 4 * 6144u);
  Plan apart = interleavedPlan(), one = apart;
  for (const test::NamedOptions &named : test::variedPlans())
    if (named.options.switches)
      one = test::makePlan(named.options);
  for (uint32_t s = 0; s < plan.schedules.size(); ++s) // placement 1 has a block less of each layer
    EXPECT_EQ(largestLiveBytes(plan, s) + (plan.schedules[s].placement == 1 ? 4 * 2048 : 0), largestLiveBytes(one, s));
}

TEST(SplitCache, RefusesStructures) {
  for (const Broken &broken : std::vector<Broken>{
           {"a weight interleaved", Rule::Structure,
            "placements[0].extents[0].interleaved is set, but buffer 0 is a weight",
            [](Plan &p) { p.placements[0].extents[0].interleaved = true; }},
           {"one that is not", Rule::Structure, "begins a cache, expected it to be interleaved on the device",
            [](Plan &p) { cache(p, 2, 1).interleaved = false; }},
           {"another number of blocks", Rule::Structure, ".bytes is 2048, another cache of the placement has 4096",
            [](Plan &p) { cache(p, 1, 1).bytes = 2048; }},
           {"part of a block", Rule::Structure, ".bytes is 4095, expected a multiple of a block's 2048",
            [](Plan &p) { cache(p, 1, 0).bytes = 4095; }},
           {"more blocks than buffers hold", Rule::Structure, "placements[1].kv_blocks is 4, expected 1 to 3",
            [](Plan &p) { p.placements[1].kvBlocks = 4; }},
           {"a buffer that holds less", Rule::Structure, "placements[0].kv_blocks is 3 of 2048 bytes, kv.0 has 4096",
            [](Plan &p) { p.buffers[p.kvBuffer(0)].bytes = 4096; }},
           {"blocks that are nowhere", Rule::Structure,
            " begins at byte 0 of buffer 19, expected byte 4096 of buffer 18",
            [](Plan &p) { p.placements[1].kvBlocks = 3; }},
           {"an operand that is no cache", Rule::Structure,
            "schedules[0].operands[0].interleaved is set, expected only",
            [](Plan &p) { p.schedules[0].operands[0].interleaved = true; }},
           {"an operand of half a block", Rule::Structure,
            ".interleaved is set of bytes [0, 5120) of kv.0, expected whole blocks of 2048",
            [](Plan &p) { cacheOf(p, kernels::Op::Attention).bytes -= 1024; }}})
    expectRefused(interleavedPlan(), broken);
}

TEST(SplitCache, RefusesPlacesOfInterleavedCaches) {
  for (const Broken &broken : std::vector<Broken>{
           {"a layer where another is", Rule::Structure,
            "placements[0].extents[20].address of kv.2 is 2048, as that of kv.1 is",
            [](Plan &p) { cache(p, 0, 2).address = 2048; }},
           {"a layer between the places", Rule::Structure,
            "kv.2 is 4352, expected one of 4 places, every 2048 bytes from 0 on",
            [](Plan &p) { cache(p, 0, 2).address += 256; }},
           {"a layer beyond the others", Rule::Structure, "kv.3 is 8192, expected one of 4 places",
            [](Plan &p) { cache(p, 0, 3).address = 8192; }},
           {"layers in another order", Rule::Structure, "kv.2 is 6144, expected 4096 as in the first placement",
            [](Plan &p) { std::swap(cache(p, 1, 2).address, cache(p, 1, 3).address); }},
           {"a range that is not aligned", Rule::Structure,
            "placements[0]: the first address of a cache is 16, expected a multiple of 256",
            [](Plan &p) {
              for (int64_t layer = 0; layer < 4; ++layer)
                cache(p, 0, layer).address += 16;
            }},
           {"a buffer among the blocks", Rule::Overlap, "the range of the caches [0, 24576) and meta [8448, ",
            [](Plan &p) { p.placements[0].extents[p.ioBuffer(Io::Meta)].address = 8448; }},
           {"the budget", Rule::OverBudget, "arena_bytes is", [](Plan &p) { p.deviceMemory -= 256; }}})
    expectRefused(interleavedPlan(), broken);
}

TEST(SplitCache, RefusesOperandsThatAreNotTheHome) {
  using kernels::Op;
  for (const Broken &broken : std::vector<Broken>{
           {"a block less", Rule::Structure,
            "attention: operand kv is kv.0 [0, 4096), expected kv.0 [0, 6144), interleaved",
            [](Plan &p) { cacheOf(p, Op::Attention).bytes -= 2048; }},
           {"one run", Rule::Structure,
            "schedules[0].operands[18] is kv.0 from byte 0 on, not interleaved, expected [0, 6144) at home",
            [](Plan &p) { cacheOf(p, Op::Attention).interleaved = false; }},
           {"read elsewhere", Rule::Structure, "schedules[0].operands[18] is kv.0 at 2048, its home is at 0",
            [](Plan &p) { cacheOf(p, Op::Attention).address = 2048; }},
           {"written elsewhere", Rule::Structure, "schedules[0].operands[15] is kv.0 at 2048, its home is at 0",
            [](Plan &p) { cacheOf(p, Op::RopeAppend).address = 2048; }}})
    expectRefused(interleavedPlan(), broken);
}

} // namespace
} // namespace headrace::plan
