// SPDX-License-Identifier: Apache-2.0
//
// Changing placement between iterations allocates nothing: this binary counts every call of the allocator.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "compiler/Compile.h"
#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"
#include "runtime/plan/value/CacheMap.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/CountAllocations.h"
#include "tests/support/StatedPlacements.h"
#include "tests/support/TinyPlan.h"

namespace headrace {
namespace {

// Of six layers; `placements` in that order. A block has 4 tokens.
plan::Plan compiled(std::vector<compiler::Candidate> placements, std::optional<int64_t> kvTokens) {
  compiler::CompileRequest request;
  request.model = core::tinyLlama(6);
  request.hardware = core::tinyPlan({.spec = core::tinyLlama(1)}).hardware;
  request.hardware.flopsF32 = request.hardware.flopsF16 = request.hardware.memoryBandwidth = 1e10;
  request.hardware.flopsEfficiency = request.hardware.memoryEfficiency = 0.5;
  request.goal.batch = 3;
  request.goal.context = 40;
  request.goal.blockTokens = 4;
  request.goal.kvTokens = kvTokens;
  request.placements = std::move(placements);
  request.buckets = {.newTokens = {1, 3, 8}, .sequences = {1, 3}, .contexts = {16, 40}};
  auto plan = compiler::compile(request);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *std::move(plan) : plan::Plan{};
}

// 70 iterations of a sequence that grows to 30 tokens and begins anew, each in another of five placements. From the
// eleventh on, when every placement was there once, nothing is allocated.
void expectNoAllocations(const plan::Plan &plan, core::Device &device) {
  const auto weights = model::syntheticWeights(3);
  const auto runtime = core::Runtime::load(plan, device, {}, weights.get(), {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  core::Runtime &run = **runtime;
  std::vector<int32_t> table;
  table.reserve(10);
  const int32_t token = 1;
  uint64_t before = 0;
  for (uint32_t i = 0; i < 70; ++i) {
    if (i == 10)
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
    ASSERT_TRUE(core::writeMeta(plan.metaLayout, plan.blockTokens, rows, device.meta()).ok());
    ASSERT_TRUE(run.launch(*variant).ok());
    ASSERT_TRUE(run.awaitTokens().ok());
    if (i % 30 == 29)
      run.kvBlocks().release(table);
  }
  EXPECT_EQ(allocations.load() - before, 0u);
  EXPECT_GT(run.transitionsRun(), 10u);
}

TEST(SwitchAllocations, NoneAtAll) {
  const plan::Plan plan =
      compiled(compiler::stated(core::tinyLlama(6), {compiler::none(), compiler::interval(6), compiler::interval(3),
                                                     compiler::interval(2), compiler::interval(1)}),
               40);
  ASSERT_EQ(plan.placements.size(), 5u);
  ASSERT_GT(plan.placements[4].kvBlocks, plan.placements[0].kvBlocks);
  const auto device = host::makeHostDevice({.unpaced = true});
  expectNoAllocations(plan, *device);
}

// 30 tokens are 8 blocks: all of 31 on the device, half of those in use, none but scratch, beside weights or alone.
TEST(SwitchAllocations, NoneWhereCachesAreSplit) {
  const struct { int64_t resident, interval; } splits[] = {{31, 0}, {5, 0}, {1, 2}, {3, 0}, {7, 1}};
  std::vector<compiler::Candidate> placements;
  for (const auto &[resident, interval] : splits) {
    placements.push_back(
        compiler::stated(core::tinyLlama(6), {interval > 0 ? compiler::interval(interval) : compiler::none()}).front());
    placements.back().name += " kv " + std::to_string(resident);
    if (resident < 31)
      placements.back().residency.setKvAway(6, resident);
  }
  const plan::Plan plan = compiled(placements, std::nullopt);
  ASSERT_EQ(plan.placements.size(), 5u);
  for (size_t p = 0; p < 5; ++p)
    ASSERT_EQ(plan::CacheMap(plan, plan.placements[p]).resident(), splits[p].resident);
  for (const std::shared_ptr<core::Device> &device :
       {std::shared_ptr<core::Device>(host::makeHostDevice({.unpaced = true})),
        std::shared_ptr<core::Device>(host::makeHostDevice({})), std::shared_ptr<core::Device>(sim::makeSimDevice())}) {
    expectNoAllocations(plan, *device);
    EXPECT_GT(device->counters().d2hBytes, 0u);
  }
}

} // namespace
} // namespace headrace
