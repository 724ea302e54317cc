// SPDX-License-Identifier: Apache-2.0
//
// Changing placement between iterations allocates nothing: this binary counts every call of the allocator.
#include <gtest/gtest.h>

#include "compiler/Compile.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"
#include "tests/support/CountAllocations.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace {
namespace {

TEST(SwitchAllocations, NoneAtAll) {
  compiler::CompileRequest request;
  request.model = core::tinyLlama(6);
  request.hardware = core::tinyPlan({.spec = core::tinyLlama(1)}).hardware;
  request.hardware.flopsF32 = request.hardware.flopsF16 = request.hardware.memoryBandwidth = 1e10;
  request.hardware.flopsEfficiency = request.hardware.memoryEfficiency = 0.5;
  request.goal.batch = 3;
  request.goal.context = 40;
  request.goal.blockTokens = 4;
  request.goal.kvTokens = 40;
  request.placements = compiler::stated(request.model, {compiler::none(), compiler::interval(6), compiler::interval(3),
                                                        compiler::interval(2), compiler::interval(1)});
  request.buckets = {.newTokens = {1, 3, 8}, .sequences = {1, 3}, .contexts = {16, 40}};
  const auto plan = compiler::compile(request);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_GT(plan->placements[4].kvBlocks, plan->placements[0].kvBlocks);
  const auto device = host::makeHostDevice({.unpaced = true});
  const auto weights = model::syntheticWeights(3);
  const auto runtime = core::Runtime::load(*plan, *device, {}, weights.get(), {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  core::Runtime &run = **runtime;
  std::vector<int32_t> table;
  table.reserve(10);
  const int32_t token = 1;
  uint64_t before = 0;
  for (uint32_t i = 0; i < 40; ++i) {
    if (i == 10) // every placement was there once
      before = allocations.load();
    const uint32_t target = i * 3 % 5;
    if (i % 2 == 0) { // hop by hop, else all at once by launching
      while (run.placement() != target)
        ASSERT_TRUE(run.takeHop(target).ok());
    }
    const auto variant = run.chooseIn(target, 1, 1, i % 30 + 1);
    ASSERT_TRUE(variant.ok());
    ASSERT_TRUE(run.kvBlocks().grow(table, i % 30 + 1).ok());
    const core::SequenceRows rows[] = {
        {.tokens = {&token, 1}, .firstPosition = i % 30, .blocks = table, .sample = true}};
    ASSERT_TRUE(core::writeMeta(plan->metaLayout, plan->blockTokens, rows, device->meta()).ok());
    ASSERT_TRUE(run.launch(*variant).ok());
    ASSERT_TRUE(run.awaitTokens().ok());
    if (i % 30 == 29)
      run.kvBlocks().release(table);
  }
  EXPECT_EQ(allocations.load() - before, 0u);
  EXPECT_GT(run.transitionsRun(), 10u);
}

} // namespace
} // namespace headrace
