// SPDX-License-Identifier: Apache-2.0
//
// Fleets of host devices: real data, paced copies, threads of their own. What a request samples must not depend on
// which instances had it, on what they offloaded meanwhile, or on how often that changed.
#include <gtest/gtest.h>

#include "runtime/host/HostGroup.h"
#include "tests/conformance/FleetFixture.h"
#include "tests/conformance/FleetReplay.h"
#include "tests/support/LongRun.h"

namespace headrace::serve {
namespace {

constexpr double kBus = 1.6e9; // of links of 1e9

std::unique_ptr<core::DeviceGroup> hostGroup(size_t devices) {
  auto group = host::makeHostGroup(std::vector<host::HostOptions>(devices), kBus);
  EXPECT_TRUE(group.ok()) << group.status();
  return *std::move(group);
}

struct HostCase {
  const char *name;
  model::ModelSpec spec;
  model::StartRule rule;
  std::vector<Role> roles;
  size_t requests;
  uint64_t iterations; // at the least: the slower the machine, the more requests share one
};

class FleetHost : public testing::TestWithParam<HostCase> {};

TEST_P(FleetHost, TokensAreThoseOfAResidentReplayOfTheLoggedCompositions) {
  const plan::Plan plan = fleetPlan({.spec = GetParam().spec, .rule = GetParam().rule});
  std::vector<LoadedFleet::On> on;
  for (size_t i = 0; i < GetParam().roles.size(); ++i)
    on.push_back({"host" + std::to_string(i), GetParam().roles[i], &plan});
  CompositionLog log;
  uint64_t changes = 0;
  FleetOptions options{.busBandwidth = kBus};
  // Others' traffic comes and goes.
  for (int64_t i = 1; i < 2000; ++i)
    options.busChanges.push_back({i * 20'000'000, i % 2 == 1 ? kBus / 2 : kBus});
  options.onIteration = [&](const FleetIteration &iteration) {
    log(iteration);
    changes += iteration.changed;
  };
  LoadedFleet fleet(hostGroup(on.size()), on, options);
  std::mt19937 random(3);
  std::vector<FleetRequest> requests =
      randomRequests(plan, {.requests = GetParam().requests, .meanGapNs = 2e6, .tpotFrom = 120, .tpotTo = 400}, random);
  for (FleetRequest &request : requests)
    request.ttft = std::chrono::minutes(1); // nobody is refused for what this machine does
  const auto result = fleet->run(requests);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->admitted, GetParam().requests / 2);
  EXPECT_GE(result->iterations, GetParam().iterations);
  EXPECT_EQ(result->lost, 0u);
  EXPECT_GT(changes, 5u);
  EXPECT_GT(result->joined, 5u);

  const plan::Plan residentPlan = fleetPlan({.spec = GetParam().spec, .intervals = {}, .rule = GetParam().rule});
  const auto device = host::makeHostDevice({.unpaced = true});
  const auto weights = model::syntheticWeights(1);
  auto resident = core::Runtime::load(residentPlan, *device, {}, weights.get(), {});
  ASSERT_TRUE(resident.ok()) << resident.status();
  for (uint32_t r = 0; r < requests.size(); ++r) {
    if (!result->requests[r].admitted)
      continue;
    const auto tokens = replayTokens(**resident, requests[r], log.of(r));
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(result->requests[r].tokens, *tokens) << "request " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Buses, FleetHost,
    testing::Values(HostCase{"llamaEager",
                             core::tinyLlama(12),
                             model::StartRule::Eager,
                             {Role::Both, Role::Both},
                             static_cast<size_t>(casesOf(200, 900)),
                             static_cast<uint64_t>(casesOf(1'000, 5'000))},
                    HostCase{"optPaper", core::tinyOpt(12), model::StartRule::Paper, {Role::Both, Role::Both}, 80, 700},
                    HostCase{"apart",
                             core::tinyLlama(12),
                             model::StartRule::Eager,
                             {Role::Prefill, Role::Decode, Role::Decode},
                             80,
                             700}),
    [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace headrace::serve
