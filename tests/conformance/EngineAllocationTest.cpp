// SPDX-License-Identifier: Apache-2.0
//
// Requests that join, leave, are preempted and cancelled cost no allocation: this binary counts every call of the
// allocator.
#include <gtest/gtest.h>

#include "runtime/host/HostDevice.h"
#include "runtime/serve/engine/Engine.h"
#include "runtime/sim/SimDevice.h"
#include "tests/conformance/SteadyLoad.h"
#include "tests/support/CountAllocations.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

class EngineAllocations : public testing::TestWithParam<std::tuple<bool, Batching, Preemption>> {};

// 60 requests of 2 to 11 tokens, 15 new ones each, in 3 seats and 9 blocks of 4 tokens, ten at first and then five
// known at a time; with every seventh another is cancelled, which the engine has to itself until its swap has ended.
// From the tenth on, when as many were known as ever will be, nothing is allocated: not by submit() either, for prompts
// that have room for their tokens. Static batches have all 30 blocks, so that there are several in one.
TEST_P(EngineAllocations, NoneWhileRequestsJoinAndLeave) {
  plan::Plan plan = core::tinyPlan({.offloaded = {1}});
  plan.goal.expansion = model::kAutoExpansion;
  const std::shared_ptr<core::Device> device = std::get<0>(GetParam())
                                                   ? std::shared_ptr<core::Device>(sim::makeSimDevice())
                                                   : host::makeHostDevice({.unpaced = true});
  const auto weights = model::syntheticWeights(1);
  const auto runtime = core::Runtime::load(plan, *device, {}, weights.get(), {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  const bool inBatches = std::get<1>(GetParam()) == Batching::Static;
  ASSERT_TRUE(inBatches || (*runtime)->kvBlocks().setLimit(10).ok());

  uint64_t ended = 0, tokens = 0, cancelled = 0;
  EngineOptions options{
      .batching = std::get<1>(GetParam()), .preemption = std::get<2>(GetParam()), .swapBytes = uint64_t{1} << 20};
  options.onToken = [&](const EngineToken &) { ++tokens; };
  options.onEnd = [&](const EngineEnd &end) {
    ++ended;
    cancelled += end.reason == EndReason::Cancelled;
  };
  const auto engine = Engine::create(**runtime, options);
  ASSERT_TRUE(engine.ok()) << engine.status();

  const SteadyLoad load;
  Steady steady;
  runSteadily(**engine, load, ended, steady);
  EXPECT_EQ(steady.allocations, 0u);
  if (inBatches)
    EXPECT_GT((*engine)->counters().paddedRows, load.requests); // one each, and more
  else
    EXPECT_GT(steady.preemptions, 0u);
  const bool swaps = !inBatches && std::get<2>(GetParam()) == Preemption::Swap;
  EXPECT_EQ((*engine)->counters().swapsIn > 3, swaps);
  EXPECT_GT(cancelled, 3u);
  EXPECT_GT(tokens, 300u);
}

INSTANTIATE_TEST_SUITE_P(Devices, EngineAllocations,
                         testing::Combine(testing::Bool(), testing::Values(Batching::Continuous, Batching::Static),
                                          testing::Values(Preemption::Recompute, Preemption::Swap)),
                         [](const auto &info) {
                           return std::string(std::get<0>(info.param) ? "sim" : "host") +
                                  (std::get<1>(info.param) == Batching::Static ? "Static" : "") +
                                  (std::get<2>(info.param) == Preemption::Swap ? "Swap" : "");
                         });

} // namespace
} // namespace headrace::serve
