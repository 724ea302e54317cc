// SPDX-License-Identifier: Apache-2.0
//
// Launches whose copies have other sizes and starts each time allocate nothing, on any thread: this program counts
// every call of the allocator.
#include <gtest/gtest.h>

#include "runtime/core/MetaWriter.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/support/CountAllocations.h"
#include "tests/support/KvCopies.h"
#include "tests/support/TinyPlan.h"

namespace headrace::core {
namespace {

class SizedCopiesAllocation : public testing::TestWithParam<DeviceUnderTest> {};

TEST_P(SizedCopiesAllocation, SizesAndStartsThatChangeAtEachLaunchAllocateNothing) {
  const auto device = GetParam().make();
  plan::Plan plan = tinyPlan({.spec = tinyLlama(4), .offloaded = {1, 3}});
  KvCopies copies{.back = CopiedBack::Written};
  addKvCopies(plan, copies);
  ASSERT_TRUE(device->open(plan, {.linkBandwidth = GetParam().pacesCopies ? 4e9 : 0, .trace = true}).ok());
  auto graph = device->build({}), transition = device->build({.transition = true, .index = 0});
  ASSERT_TRUE(graph.ok() && transition.ok());
  ASSERT_TRUE(device->upload(**graph).ok() && device->upload(**transition).ok());
  const int32_t token = 1, block = 1;
  uint64_t before = 0;
  for (int i = 0; i < 40; ++i) {
    if (i == 4) // two launches have ended: what the C library makes once a thread is there
      before = allocations.load();
    const SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    ASSERT_TRUE(writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device->meta()).ok());
    ASSERT_TRUE(device->launch(**transition, InUse{.kvBlocks = 20 - i % 17}).ok());
    const InUse inUse{.kvBlocks = 4 + i % 17, .writtenBegin = 1 + i % 13, .writtenEnd = 3 + i % 19};
    ASSERT_TRUE(device->launch(**graph, inUse).ok());
    if (i > 0) { // two in flight
      ASSERT_TRUE(device->awaitTokens(static_cast<uint64_t>(i)).ok());
    }
  }
  ASSERT_TRUE(device->drain().ok());
  EXPECT_EQ(allocations.load() - before, 0u);
}

INSTANTIATE_TEST_SUITE_P(Devices, SizedCopiesAllocation, testing::ValuesIn(kDevices),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace headrace::core
