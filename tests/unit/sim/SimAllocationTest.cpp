// SPDX-License-Identifier: Apache-2.0
//
// A launch in virtual time allocates nothing, nor does waiting for it: this program counts every call of the allocator.
#include <gtest/gtest.h>

#include "runtime/model/ModelSpec.h"
#include "runtime/sim/SimDevice.h"
#include "runtime/sim/SimGroup.h"
#include "tests/support/CountAllocations.h"
#include "tests/unit/sim/SmallPlan.h"

namespace headrace::sim {
namespace {

std::vector<std::unique_ptr<core::Graph>> open(const plan::Plan &plan, core::Device &device) {
  EXPECT_TRUE(device.open(plan, {.trace = true}).ok());
  std::vector<std::unique_ptr<core::Graph>> graphs;
  for (bool transition : {false, true}) {
    graphs.push_back(*device.build({.transition = transition, .index = 0}));
    EXPECT_TRUE(device.upload(*graphs.back()).ok());
  }
  return graphs;
}

TEST(SimAllocations, ADeviceAlone) {
  const plan::Plan plan = smallPlan();
  const auto device = makeSimDevice();
  const auto graphs = open(plan, *device);
  const uint64_t before = allocations.load();
  for (uint64_t n = 1; n <= 100; ++n) {
    fillSmall(*device, 1, 1);
    ASSERT_TRUE(device->launch(*graphs[0]).ok());
    ASSERT_TRUE(device->launch(*graphs[1]).ok());
    ASSERT_TRUE(device->awaitTokens(n).ok());
  }
  EXPECT_EQ(allocations.load() - before, 0u);
}

TEST(SimAllocations, DevicesOfAGroup) {
  const plan::Plan plan = smallPlan();
  const auto group = *makeSimGroup(3, {1e9});
  std::vector<std::vector<std::unique_ptr<core::Graph>>> graphs;
  for (size_t d = 0; d < 3; ++d)
    graphs.push_back(open(plan, group->device(d)));
  uint64_t next[] = {1, 1, 1};
  const auto launch = [&](size_t d) {
    fillSmall(group->device(d), 1, 1);
    ASSERT_TRUE(group->device(d).launch(*graphs[d][0]).ok());
    ASSERT_TRUE(group->device(d).launch(*graphs[d][1]).ok());
  };
  const uint64_t before = allocations.load();
  for (size_t d = 0; d < 3; ++d)
    launch(d);
  for (int n = 0; n < 300; ++n) {
    const auto ready = group->waitAny(next, core::kForeverNs);
    ASSERT_TRUE(ready.ok());
    ASSERT_TRUE(group->device(*ready).awaitTokens(next[*ready]++).ok());
    launch(*ready);
    ASSERT_TRUE(group->setBusBandwidth(n % 2 == 0 ? 2e9 : 1e9).ok());
    (void)group->sampleBusBandwidth();
  }
  EXPECT_EQ(allocations.load() - before, 0u);
}

} // namespace
} // namespace headrace::sim
