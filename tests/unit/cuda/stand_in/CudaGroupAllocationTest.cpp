// SPDX-License-Identifier: Apache-2.0
//
// Waiting for several CUDA devices costs no allocation, whether tokens are there or have to be waited for: this binary
// counts every call of the allocator.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "runtime/core/MetaWriter.h"
#include "runtime/core/Runtime.h"
#include "runtime/cuda/CudaGroup.h"
#include "tests/support/CountAllocations.h"
#include "tests/unit/cuda/Generate.h"
#include "tests/unit/cuda/stand_in/StandIn.h"

namespace headrace::cuda {
namespace {

TEST(CudaGroupAllocation, NoneInWaiting) {
  ASSERT_EQ(::setenv("HEADRACE_CUDA_LIBRARIES", HEADRACE_STAND_IN_LIBRARIES, 1), 0);
  stand_in::show({{}, {}});
  const plan::Plan plan = planFor(model::DeviceKind::Cuda, {.spec = core::tinyLlama(2), .offloaded = {1}});
  auto group = makeCudaGroup(std::vector<CudaOptions>{{.index = 0}, {.index = 1}});
  ASSERT_TRUE(group.ok()) << group.status();
  std::vector<std::unique_ptr<core::Runtime>> runtimes;
  for (size_t i = 0; i < 2; ++i) {
    auto runtime = core::Runtime::load(plan, (*group)->device(i), {}, model::syntheticWeights(7).get(), {});
    ASSERT_TRUE(runtime.ok()) << runtime.status();
    runtimes.push_back(*std::move(runtime));
  }
  const auto launch = [&](size_t i) {
    const int32_t token = 1, block = 1;
    const core::SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    ASSERT_TRUE(core::writeMeta(plan.metaLayout, plan.blockTokens, {&rows, 1}, runtimes[i]->device().meta()).ok());
    ASSERT_TRUE(runtimes[i]->launch(0).ok());
  };
  // 5 ms with nothing to be had: CUDA is asked some 25 times. The stand-in counts its calls' names once each.
  const auto waitsInVain = [&](uint64_t awaited) {
    return *(*group)->waitAny({awaited, awaited}, (*group)->nowNs() + 5'000'000) == 2;
  };
  for (uint64_t n = 1; n <= 3; ++n) {
    stand_in::hold();
    launch(0);
    launch(1);
    ASSERT_TRUE(n > 1 || waitsInVain(n)); // what is made once has been
    const uint64_t before = allocations.load();
    EXPECT_TRUE(waitsInVain(n));
    EXPECT_EQ(allocations.load() - before, 0u);
    stand_in::release();
    for (auto &runtime : runtimes)
      ASSERT_TRUE(runtime->awaitTokens().ok());
    const uint64_t there = allocations.load();
    EXPECT_EQ(*(*group)->waitAny({n, n}, core::kForeverNs), 0u);
    EXPECT_EQ(*(*group)->waitAny({0, n}, 0), 1u);
    EXPECT_EQ(allocations.load() - there, 0u);
  }
}

} // namespace
} // namespace headrace::cuda
