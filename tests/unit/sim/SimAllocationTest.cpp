// SPDX-License-Identifier: Apache-2.0
//
// A launch in virtual time allocates nothing, nor does waiting for it: this program counts every call of the allocator.
#include <gtest/gtest.h>

#include "kernels/Kernels.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/sim/SimDevice.h"
#include "runtime/sim/SimGroup.h"
#include "tests/support/CountAllocations.h"
#include "tests/unit/sim/SmallPlan.h"

namespace headrace::sim {
namespace {

std::vector<std::unique_ptr<core::Graph>> open(const plan::Plan &plan, core::Device &device,
                                               core::Pricing pricing = core::Pricing::Bucket, bool trace = true) {
  EXPECT_TRUE(device.open(plan, {.trace = trace, .pricing = pricing}).ok());
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

// With copies beside, and one step behind the other.
TEST(SimAllocations, ADeviceThatPricesWhatRuns) {
  for (const bool copies : {true, false}) {
    plan::Plan plan = smallPlan();
    plan.model->heads = plan.model->headDim = 1;
    plan.hardware.kind = model::DeviceKind::Host;
    plan.hardware.flopsF32 = 1e9;
    plan.hardware.memoryBandwidth = 1e30;
    plan.hardware.flopsEfficiency = plan.hardware.memoryEfficiency = plan.hardware.linkEfficiency = 1;
    plan.schedules[0].steps[0].op = kernels::Op::Attention;
    plan.variants[0].context = 100;
    if (!copies) {
      plan.schedules[0].steps.pop_back();
      plan.schedules[0].edges.clear();
      plan.variants[0].durationsNs.pop_back();
    }
    const auto device = makeSimDevice();
    const auto graphs = open(plan, *device, core::Pricing::Rows, /*trace=*/copies);
    const uint64_t before = allocations.load();
    for (uint64_t n = 1; n <= 100; ++n) {
      fillSmall(*device, 1, 1);
      kernels::IterationMeta *meta = device->meta();
      meta->array<int32_t>(meta->queryStart)[1] = 1;
      meta->array<int32_t>(meta->queryStart)[2] = 2;
      meta->array<int32_t>(meta->contextLength)[0] = static_cast<int32_t>(n);
      ASSERT_TRUE(device->launch(*graphs[0]).ok());
      ASSERT_TRUE(device->awaitTokens(n).ok());
    }
    EXPECT_EQ(allocations.load() - before, 0u);
  }
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
