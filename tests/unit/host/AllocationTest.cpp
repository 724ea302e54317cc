// SPDX-License-Identifier: Apache-2.0
//
// An iteration allocates nothing, on any of the device's threads: this binary counts every call of the allocator.
#include <gtest/gtest.h>

#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/host/HostDevice.h"
#include "runtime/host/HostGroup.h"
#include "runtime/serve/engine/BatchEngine.h"
#include "tests/support/CountAllocations.h"
#include "tests/support/TinyPlan.h"

namespace headrace::host {
namespace {

std::unique_ptr<core::Runtime> load(const plan::Plan &plan, core::Device &device) {
  const auto weights = model::syntheticWeights(3);
  auto runtime = core::Runtime::load(plan, device, {.linkBandwidth = 4e9, .trace = true}, weights.get(), {});
  EXPECT_TRUE(runtime.ok()) << runtime.status();
  return runtime.ok() ? *std::move(runtime) : nullptr;
}

TEST(Allocations, AreCounted) {
  const uint64_t before = allocations.load();
  std::vector<int> *volatile v = new std::vector<int>(100);
  delete v;
  EXPECT_EQ(allocations.load() - before, 2u);
}

class Threads : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Allocations, Threads, testing::Values(1, 3));

TEST_P(Threads, LaunchingAndAwaitingDoNotAllocate) {
  const plan::Plan plan =
      core::tinyPlan({.spec = core::tinyLlama(4), .offloaded = {1, 3}, .wrap = true, .mirroredFrom = 2});
  const auto device = makeHostDevice({.threads = GetParam(), .unitNs = 0});
  const auto runtime = load(plan, *device);
  const int32_t prompt[] = {1, 2, 3, 4, 5}, token = -1, blocks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  uint64_t before = 0;
  for (int i = 0; i < 30; ++i) {
    if (i == 3) // two launches have ended: what the C library makes once a thread is there
      before = allocations.load();
    const core::SequenceRows rows[] = {{.tokens = {&token, 1}, .firstPosition = i, .blocks = blocks, .sample = true},
                                       {.tokens = prompt, .blocks = blocks, .sample = i % 2 == 0, .requestSlot = 1}};
    const size_t count = i % 3 == 0 ? 2 : 1; // mixed and decode in turn
    ASSERT_TRUE(core::writeMeta(plan.metaLayout, plan.blockTokens, {rows, count}, device->meta()).ok());
    const auto variant = runtime->choose(count == 2 ? 6 : 1, static_cast<int64_t>(count), i + 1);
    ASSERT_TRUE(variant.ok());
    ASSERT_TRUE(runtime->launch(*variant).ok());
    if (i > 0) { // two in flight
      ASSERT_TRUE(runtime->awaitTokens().ok());
    }
  }
  ASSERT_TRUE(runtime->awaitTokens().ok());
  ASSERT_TRUE(device->drain().ok());
  EXPECT_EQ(allocations.load() - before, 0u);
}

TEST(Allocations, ServingTheDevicesOfAGroupDoesNotAllocate) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(4), .offloaded = {1, 3}, .wrap = true});
  const auto group = makeHostGroup(std::vector<HostOptions>(2), 2e9);
  ASSERT_TRUE(group.ok());
  const std::unique_ptr<core::Runtime> runtimes[] = {load(plan, (*group)->device(0)), load(plan, (*group)->device(1))};
  const int32_t token = 1, block = 1;
  const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
  uint64_t before = 0, awaited[] = {0, 0};
  for (int i = 0; i < 60; ++i) {
    if (i == 6)
      before = allocations.load();
    for (size_t d = 0; d < 2; ++d)
      if (awaited[d] == runtimes[d]->launched()) { // the one that was awaited last, at first both
        core::Device &device = (*group)->device(d);
        ASSERT_TRUE(core::writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, device.meta()).ok());
        ASSERT_TRUE(runtimes[d]->launch(0).ok());
      }
    const uint64_t next[] = {awaited[0] + 1, awaited[1] + 1};
    const auto ready = (*group)->waitAny(next, core::kForeverNs);
    ASSERT_TRUE(ready.ok());
    ASSERT_TRUE(runtimes[*ready]->awaitTokens().ok());
    ++awaited[*ready];
    ASSERT_TRUE((*group)->setBusBandwidth(i % 2 == 0 ? 1e9 : 2e9).ok());
    (void)(*group)->sampleBusBandwidth();
  }
  EXPECT_EQ(allocations.load() - before, 0u);
  for (size_t d = 0; d < 2; ++d)
    ASSERT_TRUE((*group)->device(d).drain().ok());
}

TEST(Allocations, TheEngineAllocatesBeforeItsFirstIterationOnly) {
  const plan::Plan plan = core::tinyPlan({.spec = core::tinyLlama(4), .offloaded = {0, 2}, .wrap = true});
  const auto device = makeHostDevice();
  const auto runtime = load(plan, *device);
  serve::GenerateRequest request;
  request.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {5, 6}, {7}};
  request.maxNewTokens = 25;
  std::vector<uint64_t> seen;
  seen.reserve(100);
  request.onIteration = [&](const serve::IterationSeen &) { seen.push_back(allocations.load()); };
  ASSERT_TRUE(serve::generate(*runtime, request).ok());
  ASSERT_GT(seen.size(), 20u);
  EXPECT_EQ(seen.back(), seen.front());
}

} // namespace
} // namespace headrace::host
