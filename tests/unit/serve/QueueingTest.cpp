// SPDX-License-Identifier: Apache-2.0
//
// Queueing against theory. One sequence at a time, constant lengths and Poisson arrivals are an M/D/1 queue: requests
// wait as Lindley's recursion says, and the recursion's mean is Pollaczek and Khinchine's.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/serve/traffic/Arrivals.h"
#include "runtime/serve/traffic/Lengths.h"
#include "runtime/serve/traffic/Traffic.h"
#include "runtime/sim/SimDevice.h"
#include "tests/support/TinyPlan.h"

namespace headrace::serve {
namespace {

// W of the next = max(0, W + S - the gap to it); calls seen(W) of each.
template <class Seen> void lindley(const std::vector<int64_t> &arrivalsNs, int64_t serviceNs, Seen seen) {
  int64_t waitNs = 0;
  for (size_t i = 0; i < arrivalsNs.size(); ++i) {
    if (i > 0)
      waitNs = std::max<int64_t>(0, waitNs + serviceNs - (arrivalsNs[i] - arrivalsNs[i - 1]));
    seen(i, waitNs);
  }
}

class MD1 : public testing::TestWithParam<double> {};

TEST_P(MD1, EachRequestWaitsAsLindleysRecursionSays) {
  const plan::Plan plan = core::tinyPlan({});
  const auto device = sim::makeSimDevice();
  const auto runtime = core::Runtime::load(plan, *device, {}, nullptr, {});
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  TrafficOptions options;
  options.engine.maxNumSeqs = 1;
  options.engine.depth = 1; // else the next is launched while the one before still runs
  constexpr RequestLengths kLengths{.prompt = 9, .output = 5};
  const auto alone = runTraffic(**runtime, makeRequests({0}, {kLengths}), options);
  ASSERT_TRUE(alone.ok()) << alone.status();
  const int64_t serviceNs = alone->requests[0].latencyNs();
  ASSERT_GT(serviceNs, 0);

  constexpr int64_t kRequests = 10'000;
  const double rate = GetParam() / (static_cast<double>(serviceNs) * 1e-9);
  const std::vector<int64_t> arrivals = *arrivalTimes({.requestRate = rate}, kRequests, 1);
  const auto result =
      runTraffic(**runtime, makeRequests(arrivals, std::vector<RequestLengths>(kRequests, kLengths)), options);
  ASSERT_TRUE(result.ok()) << result.status();
  int64_t waited = 0;
  lindley(arrivals, serviceNs, [&](size_t i, int64_t waitNs) {
    const RequestTimes &times = result->requests[i];
    ASSERT_EQ(times.queueingNs(), waitNs) << "request " << i;
    ASSERT_EQ(times.latencyNs(), waitNs + serviceNs) << "request " << i;
    waited += waitNs > 0;
  });
  EXPECT_GT(waited, 2000);
  EXPECT_LT(waited, kRequests);
}

// rho S / (2 (1 - rho)): at rho 0.9 with S = 1 ms 4.5 ms.
TEST_P(MD1, TheRecursionsMeanIsTheClosedForm) {
  constexpr int64_t kServiceNs = 1'000'000, kRequests = 10'000'000;
  const double rho = GetParam(), expectedNs = rho * kServiceNs / (2 * (1 - rho));
  double sum = 0;
  lindley(*arrivalTimes({.requestRate = rho * 1e9 / kServiceNs}, kRequests, 1), kServiceNs,
          [&](size_t, int64_t waitNs) { sum += static_cast<double>(waitNs); });
  const double mean = sum / kRequests;
  RecordProperty("error", std::to_string(mean / expectedNs - 1));
  EXPECT_NEAR(mean, expectedNs, 0.01 * expectedNs);
}

INSTANTIATE_TEST_SUITE_P(Loads, MD1, testing::Values(0.3, 0.6, 0.9), [](const auto &info) {
  return "rho" + std::to_string(static_cast<int>(std::lround(info.param * 100)));
});

} // namespace
} // namespace headrace::serve
