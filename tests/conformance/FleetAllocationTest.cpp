// SPDX-License-Identifier: Apache-2.0
//
// Between decisions a fleet allocates nothing, on any thread: this binary counts every call of the allocator.
#include <gtest/gtest.h>

#include "runtime/host/HostGroup.h"
#include "runtime/sim/SimGroup.h"
#include "tests/conformance/FleetFixture.h"
#include "tests/support/CountAllocations.h"

namespace headrace::serve {
namespace {

TEST(FleetAllocations, AreCounted) {
  const uint64_t before = allocations.load();
  std::vector<int> *volatile v = new std::vector<int>(100);
  delete v;
  EXPECT_EQ(allocations.load() - before, 2u);
}

class FleetAllocations : public testing::TestWithParam<bool> {};

TEST_P(FleetAllocations, NoneAreMadeWhereNothingIsDecided) {
  const plan::Plan plan = fleetPlan();
  auto group =
      GetParam() ? sim::makeSimGroup(2, {1.6e9}) : host::makeHostGroup(std::vector<host::HostOptions>(2), 1.6e9);
  ASSERT_TRUE(group.ok()) << group.status();
  std::vector<uint64_t> counted; // allocations so far at each iteration of the last request that began
  counted.reserve(1000);
  FleetOptions options{.busBandwidth = 1.6e9};
  options.lowerBy = 0.9; // what a busy machine measures decides nothing
  bool both = false;
  options.onIteration = [&](const FleetIteration &iteration) {
    both = both || std::any_of(iteration.gaps.begin(), iteration.gaps.end(),
                               [](const FleetGap &gap) { return gap.request == 1; });
    if (both)
      counted.push_back(allocations.load());
  };
  LoadedFleet fleet(*std::move(group), {{"left", Role::Both, &plan}, {"right", Role::Both, &plan}}, options);
  std::vector<FleetRequest> requests(2);
  for (FleetRequest &request : requests) {
    request.model = plan.model->name;
    request.prompts = {{1, 2, 3}, {4}};
    request.maxNewTokens = 40;
    request.ttft = std::chrono::minutes(1);
    request.tpot = wholeNs(residentTimes(plan).decodeNs * 2.5);
  }
  const auto result = fleet->run(requests);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->admitted, 2u);
  // The first iterations are those after the decisions; the last ones come when one request has ended.
  ASSERT_GT(counted.size(), 30u);
  EXPECT_EQ(counted[counted.size() / 2], counted[counted.size() / 4]);
}

// Nor while a KV cache is handed over: after the first one, between its beginning and its end.
TEST(FleetAllocations, NoneAreMadeWhileAKvCacheIsHandedOver) {
  const plan::Plan plan = fleetPlan({.linkBandwidth = 2e7, .intervals = {}});
  auto group = sim::makeSimGroup(2, {2e7, 2e7});
  ASSERT_TRUE(group.ok()) << group.status();
  struct Seen {
    int64_t visibleNs = 0;
    uint64_t allocations = 0;
  };
  std::vector<Seen> seen;
  seen.reserve(1000);
  FleetOptions options{.busBandwidth = 2e7, .busD2hBandwidth = 2e7};
  options.onIteration = [&](const FleetIteration &iteration) {
    if (iteration.instance == 1)
      seen.push_back({iteration.visibleNs, allocations.load()});
  };
  LoadedFleet fleet(*std::move(group), {{"prefill", Role::Prefill, &plan}, {"decode", Role::Decode, &plan}}, options);
  std::vector<FleetRequest> requests(3);
  for (FleetRequest &request : requests) {
    request.model = plan.model->name;
    request.prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}};
    request.maxNewTokens = 34;
    request.ttft = std::chrono::minutes(1);
    request.tpot = wholeNs(residentTimes(plan).decodeNs * 1.1);
  }
  const auto result = fleet->run(requests);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->joined, 2u);
  const RequestOutcome &last = result->requests[2];
  std::vector<uint64_t> counted;
  for (const Seen &one : seen)
    if (one.visibleNs > last.firstTokensNs - last.handoverNs && one.visibleNs < last.firstTokensNs)
      counted.push_back(one.allocations);
  ASSERT_GT(counted.size(), 4u);
  EXPECT_EQ(counted.front(), counted.back());
}

INSTANTIATE_TEST_SUITE_P(Devices, FleetAllocations, testing::Bool(),
                         [](const auto &info) { return std::string(info.param ? "sim" : "host"); });

} // namespace
} // namespace headrace::serve
