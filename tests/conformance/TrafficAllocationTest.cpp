// SPDX-License-Identifier: Apache-2.0
//
// Traffic allocates for its requests and not for its iterations: this binary counts every call of the allocator.
#include <gtest/gtest.h>

#include "runtime/serve/traffic/Lengths.h"
#include "runtime/serve/traffic/Traffic.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/CountAllocations.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

// 200 requests of 5 tokens that come while others run, in 3 seats; 4 or 32 new tokens each, with all that is kept.
TEST(TrafficAllocations, AsManyForAnyNumberOfIterations) {
  const plan::Plan plan = core::tinyPlan({});
  const auto device = sim::makeSimDevice();
  const auto runtime = core::Runtime::load(plan, *device, {}, nullptr, {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  std::vector<int64_t> arrivals(200, 0);
  TrafficOptions options;
  options.keepTokenTimes = true;
  options.sampleEveryNs = 1000;
  uint64_t counted[2] = {0, 0}, iterations[2] = {0, 0};
  for (size_t i = 0; i < 2; ++i) {
    const std::vector<TrafficRequest> requests =
        makeRequests(arrivals, std::vector<RequestLengths>(200, {.prompt = 5, .output = i == 0 ? 4 : 32}));
    const uint64_t before = allocations.load();
    const auto result = runTraffic(**runtime, requests, options);
    counted[i] = allocations.load() - before;
    ASSERT_TRUE(result.ok()) << result.status();
    iterations[i] = result->engine.iterations;
    EXPECT_EQ(result->itlNs.size(), i == 0 ? 600u : 6200u);
  }
  EXPECT_GT(iterations[1], iterations[0] + 1500);
  EXPECT_EQ(counted[1], counted[0]);
}

} // namespace
} // namespace headrace::serve
