// SPDX-License-Identifier: Apache-2.0
//
// Copies beside launches allocate nothing on any thread: this program counts every call of the allocator.
#include <gtest/gtest.h>

#include "runtime/core/MetaWriter.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/support/CountAllocations.h"
#include "tests/support/TinyPlan.h"

namespace headrace::core {
namespace {

class BesideCopiesAllocation : public testing::TestWithParam<DeviceUnderTest> {};

TEST_P(BesideCopiesAllocation, CopiesBesideLaunchesAllocateNothing) {
  const auto device = GetParam().make();
  const plan::Plan plan = tinyPlan({.spec = tinyLlama(4), .offloaded = {1, 3}});
  ASSERT_TRUE(device->open(plan, {.linkBandwidth = GetParam().pacesCopies ? 4e9 : 0}).ok());
  ASSERT_TRUE(device->reserveSwap(4096).ok());
  auto graph = device->build({});
  ASSERT_TRUE(graph.ok() && device->upload(**graph).ok());
  const uint64_t region = plan.arenaBytes - 4096;
  const BlockCopy copies[] = {{false, region, 0, 2048}, {true, region + 2048, 2048, 1024}, {false, region, 0, 512}};
  const int32_t token = 1, block = 1;
  uint64_t before = 0, ticket = 0;
  for (int i = 0; i < 40; ++i) {
    if (i == 4) // two launches have ended: what the C library makes once a thread is there
      before = allocations.load();
    const SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    ASSERT_TRUE(writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device->meta()).ok());
    ASSERT_TRUE(device->launch(**graph).ok());
    const auto asked = device->copyBeside(copies);
    ASSERT_TRUE(asked.ok());
    ticket = *asked;
    ASSERT_TRUE(device->copied(ticket).ok());
    if (i > 0) { // two in flight
      ASSERT_TRUE(device->awaitTokens(static_cast<uint64_t>(i)).ok());
      ASSERT_TRUE(device->awaitCopied(ticket - 1).ok());
    }
  }
  ASSERT_TRUE(device->drain().ok());
  EXPECT_EQ(allocations.load() - before, 0u);
}

INSTANTIATE_TEST_SUITE_P(Devices, BesideCopiesAllocation, testing::ValuesIn(kDevices),
                         [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace headrace::core
