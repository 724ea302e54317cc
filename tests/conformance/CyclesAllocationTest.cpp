// SPDX-License-Identifier: Apache-2.0
//
// Iterations that go round a cycle allocate nothing, nor do flushes: this program counts every call of the allocator.
#include <gtest/gtest.h>

#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/conformance/TailPlans.h"
#include "tests/support/CountAllocations.h"

namespace headrace::core {
namespace {

// 120 iterations of a sequence that grows to 30 tokens and begins anew, three rows at once each fifth time, so that
// prompts take the place of a decode; every eleventh begins behind a flush.
void expectNoAllocations(const plan::Plan &plan, bool dirty, Device &device) {
  const auto weights = model::syntheticWeights(3);
  const auto runtime = Runtime::load(plan, device, {}, weights.get(), {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  Runtime &run = **runtime;
  std::vector<int32_t> table;
  table.reserve(10);
  const int32_t tokens[] = {1, 2, 3};
  uint64_t before = 0, flushes = 0, others = 0;
  int64_t position = 0;
  for (int i = 0; i < 120; ++i) {
    if (i == 20)
      before = allocations.load();
    if (i % 11 == 10) {
      const uint64_t transitions = run.transitionsRun();
      ASSERT_TRUE(run.flushKv().ok());
      flushes += run.transitionsRun() - transitions;
    }
    const int64_t rows = i % 5 == 4 ? 3 : 1;
    const auto variant = run.choose(rows, 1, position + rows);
    ASSERT_TRUE(variant.ok()) << variant.status();
    ASSERT_TRUE(run.kvBlocks().grow(table, position + rows).ok());
    const SequenceRows sequence{
        .tokens = {tokens, static_cast<size_t>(rows)}, .firstPosition = position, .blocks = table, .sample = true};
    ASSERT_TRUE(writeMeta(plan.metaLayout, plan.blockTokens, {&sequence, 1}, device.meta()).ok());
    const uint64_t transitions = run.transitionsRun();
    ASSERT_TRUE(run.launch(*variant).ok());
    others += run.transitionsRun() - transitions;
    if (i % 2 == 1) { // two in flight
      for (int read = 0; read < 2; ++read)
        ASSERT_TRUE(run.awaitTokens().ok());
    }
    position += rows;
    if (position > 26) {
      run.kvBlocks().release(table);
      position = 0;
    }
  }
  EXPECT_EQ(allocations.load() - before, 0u);
  // Only dirty states are flushed, before iterations 10, 21, ... 109; behind each flush, and at the start, the cycle is
  // entered anew.
  EXPECT_EQ(flushes, dirty ? 10u : 0u);
  EXPECT_EQ(others, dirty ? 11u : 1u);
}

class CyclesAllocation : public testing::TestWithParam<DeviceUnderTest> {};

TEST_P(CyclesAllocation, NoneAtAll) {
  for (const WriteBack how : {WriteBack::Mirror, WriteBack::All, WriteBack::Dirty})
    for (const int64_t resident : {0, 2}) {
      SCOPED_TRACE(nameOf(how));
      const auto device = GetParam().make();
      expectNoAllocations(
          tailPlan({.spec = tinyLlama(6), .kind = GetParam().plansFor}, resident, 5, how, goingRound(5, how)),
          how == WriteBack::All, *device);
    }
}

INSTANTIATE_TEST_SUITE_P(Devices, CyclesAllocation, testing::ValuesIn(kDevices),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace headrace::core
