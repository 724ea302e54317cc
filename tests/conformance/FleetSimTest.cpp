// SPDX-License-Identifier: Apache-2.0
//
// Fleets in virtual time: requests that arrive and leave at random on devices that share a bus, with and without
// others' traffic on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "runtime/sim/SimGroup.h"
#include "tests/conformance/FleetFixture.h"
#include "tests/support/LongRun.h"
#include "tests/support/SourceDir.h"

namespace headrace::serve {
namespace {

constexpr double kBus = 1.6e9; // of links of 1e9

const plan::Plan &sharedPlan() {
  static const plan::Plan plan = fleetPlan();
  return plan;
}

std::unique_ptr<core::DeviceGroup> simGroup(size_t devices) {
  auto group = sim::makeSimGroup(devices, {kBus});
  EXPECT_TRUE(group.ok()) << group.status();
  return *std::move(group);
}

struct FleetCase {
  const char *name;
  std::vector<Role> roles;
  size_t requests; // enough for 10,000 iterations
};

class FleetSim : public testing::TestWithParam<FleetCase> {
protected:
  std::vector<LoadedFleet::On> instances() const {
    std::vector<LoadedFleet::On> on;
    for (size_t i = 0; i < GetParam().roles.size(); ++i)
      on.push_back({"gpu" + std::to_string(i), GetParam().roles[i], &sharedPlan()});
    return on;
  }
  std::vector<FleetRequest> requests() const {
    std::mt19937 random(7);
    return randomRequests(sharedPlan(), {.requests = GetParam().requests, .meanGapNs = 6e6}, random);
  }
};

std::string describe(const FleetResult &r) {
  const auto counts = [](const MissCounts &m) {
    return std::to_string(m.busLost) + " bus lost, " + std::to_string(m.kvBlocks) + " KV blocks, " +
           std::to_string(m.other) + " other";
  };
  return std::to_string(r.admitted) + " admitted, " + std::to_string(r.refused) + " refused, " +
         std::to_string(r.held) + " held, " + std::to_string(r.iterations) + " iterations, " +
         std::to_string(r.changes) + " changes, missed: " + counts(r.misses) + "; TTFT: " + counts(r.ttftMisses) +
         "; " + std::to_string(r.bandwidthLosses) + " losses of bandwidth, freed on average " +
         std::to_string(r.freedByteSeconds / (static_cast<double>(r.endNs - r.startNs) * 1e-9)) + " bytes";
}

// docs/fleet.md has a row of each case.
std::string page() {
  std::ifstream file(sourceDir() + "/docs/fleet.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_P(FleetSim, NothingThatWasAdmittedMissesItsObjectives) {
  LoadedFleet fleet(simGroup(GetParam().roles.size()), instances(), {.busBandwidth = kBus});
  const std::vector<FleetRequest> requests = this->requests();
  const auto result = fleet->run(requests);
  ASSERT_TRUE(result.ok()) << result.status();
  SCOPED_TRACE(describe(*result));
  RecordProperty("result", describe(*result));
  EXPECT_GE(result->iterations, 10'000u);
  EXPECT_EQ(result->misses.total(), 0u);
  EXPECT_EQ(result->ttftMisses.total(), 0u);
  EXPECT_EQ(result->held, result->admitted);
  EXPECT_EQ(result->lost, 0u);
  EXPECT_EQ(result->bandwidthLosses, 0u);
  EXPECT_GT(result->changes, 100u);
  EXPECT_GT(result->freedByteSeconds, 0);
  EXPECT_GT(result->admitted, requests.size() / 3);
  EXPECT_THAT(page(), testing::HasSubstr("| " + std::to_string(result->admitted) + " of " +
                                         std::to_string(requests.size()) + " | " + std::to_string(result->iterations) +
                                         ", " + std::to_string(result->changes) + " | 0 |"));
  for (size_t r = 0; r < requests.size(); ++r) {
    const RequestOutcome &outcome = result->requests[r];
    if (!outcome.admitted) {
      EXPECT_FALSE(outcome.status.ok());
      EXPECT_THAT(std::string(outcome.status.message()), testing::HasSubstr("request " + std::to_string(r)));
      continue;
    }
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    ASSERT_EQ(outcome.tokens.size(), requests[r].prompts.size());
    for (const auto &tokens : outcome.tokens)
      EXPECT_EQ(tokens.size(), static_cast<size_t>(requests[r].maxNewTokens));
    EXPECT_LE(static_cast<double>(outcome.ttftNs()), requests[r].ttftNs());
    EXPECT_LE(static_cast<double>(outcome.longestGapNs), requests[r].tpotNs());
    const bool apart = outcome.decodeInstance != kNoInstance && outcome.decodeInstance != outcome.prefillInstance;
    EXPECT_EQ(outcome.handoverNs > 0, apart);
  }
}

// Requests with all the time there is are served in their turn, one behind the other: nobody waits for an instance that
// has nothing to do, whoever was to be joined has ended meanwhile.
TEST_P(FleetSim, NobodyWaitsForWhatIsIdle) {
  FleetOptions options{.busBandwidth = kBus};
  for (int64_t i = 1; i < 2000; ++i)
    options.busChanges.push_back({i * 20'000'000, i % 2 == 1 ? kBus / 2 : kBus});
  for (uint32_t seed = 0; seed < static_cast<uint32_t>(casesOf(5, 200)); ++seed) {
    std::mt19937 random(seed);
    std::vector<FleetRequest> requests =
        randomRequests(sharedPlan(), {.requests = 80, .meanGapNs = 2e6, .tpotFrom = 120, .tpotTo = 400}, random);
    for (FleetRequest &request : requests)
      request.ttft = std::chrono::minutes(10);
    LoadedFleet fleet(simGroup(GetParam().roles.size()), instances(), options);
    const auto result = fleet->run(requests);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_LT(result->endNs - result->startNs, 60'000'000'000) << "seed " << seed;
    for (const RequestOutcome &outcome : result->requests)
      EXPECT_THAT(std::string(outcome.status.message()), testing::Not(testing::HasSubstr("is spent")))
          << "seed " << seed;
  }
}

// Others take half the bus, for a second each time.
TEST_P(FleetSim, MissesAreBoundedByEachLossOfBandwidth) {
  FleetOptions options{.busBandwidth = kBus};
  for (int64_t second = 1; second < 60; second += 2) {
    options.busChanges.push_back({second * 1'000'000'000, kBus / 2});
    options.busChanges.push_back({(second + 1) * 1'000'000'000, kBus});
  }
  const std::vector<FleetRequest> requests = this->requests();
  // Missed iterations of each instance, and the most that is offloaded while they are.
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> missed;
  double shortestSlo = 1e18;
  const Fleet *running = nullptr;
  uint64_t lossesSeen = 0;
  double planned = kBus;
  options.onIteration = [&](const FleetIteration &i) {
    if (running->coordinator().plannedBandwidth() < planned)
      ++lossesSeen;
    planned = running->coordinator().plannedBandwidth();
    bool any = false;
    for (const FleetGap &gap : i.gaps) {
      if (gap.missed == MissCause::None)
        continue;
      EXPECT_EQ(gap.missed, MissCause::BusLost);
      any = true;
      shortestSlo = std::min(shortestSlo, requests[gap.request].tpotNs());
    }
    if (any)
      ++missed[{i.instance, lossesSeen}];
  };
  LoadedFleet fleet(simGroup(GetParam().roles.size()), instances(), options);
  running = &*fleet;
  const auto result = fleet->run(requests);
  ASSERT_TRUE(result.ok()) << result.status();
  SCOPED_TRACE(describe(*result));
  RecordProperty("result", describe(*result));
  EXPECT_GE(result->iterations, 10'000u);
  EXPECT_GT(result->bandwidthLosses, 0u);
  EXPECT_EQ(result->misses.other, 0u);
  EXPECT_EQ(result->misses.kvBlocks, 0u);
  EXPECT_EQ(result->ttftMisses.other, 0u);
  EXPECT_THAT(page(), testing::ContainsRegex("of " + std::to_string(requests.size()) + "[^\n]* 0 . " +
                                             std::to_string(result->misses.total()) + ", " +
                                             std::to_string(result->bandwidthLosses) + " ."));
  // Of a loss, an instance misses at most 1 + ceil(offloaded bytes / (rate left x SLO)) iterations.
  uint64_t offloaded = 0;
  for (uint32_t p = 0; p < sharedPlan().placements.size(); ++p)
    offloaded = std::max(offloaded, plan::weightBytesByHome(sharedPlan(), p).host);
  const double left = std::min(1e9, kBus / 2 / static_cast<double>(GetParam().roles.size()));
  const double most = 1 + std::ceil(static_cast<double>(offloaded) / (left * shortestSlo * 1e-9));
  for (const auto &[where, count] : missed)
    EXPECT_LE(static_cast<double>(count), most) << "instance " << where.first << ", loss " << where.second;
}

TEST_P(FleetSim, TheSameRequestsHaveTheSameOutcome) {
  std::vector<int64_t> ends[2];
  for (std::vector<int64_t> &times : ends) {
    LoadedFleet fleet(simGroup(GetParam().roles.size()), instances(), {.busBandwidth = kBus});
    std::vector<FleetRequest> requests = this->requests();
    requests.resize(100);
    const auto result = fleet->run(requests);
    ASSERT_TRUE(result.ok()) << result.status();
    for (const RequestOutcome &outcome : result->requests)
      times.push_back(outcome.endNs);
  }
  EXPECT_EQ(ends[0], ends[1]);
}

INSTANTIATE_TEST_SUITE_P(
    Buses, FleetSim,
    testing::Values(FleetCase{"two", {Role::Both, Role::Both}, 1000},
                    FleetCase{"four", {Role::Both, Role::Both, Role::Both, Role::Both}, 1000},
                    FleetCase{"onePrefills", {Role::Prefill, Role::Decode, Role::Decode}, 1300},
                    FleetCase{"apart", {Role::Prefill, Role::Prefill, Role::Decode, Role::Decode}, 1400}),
    [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace headrace::serve
