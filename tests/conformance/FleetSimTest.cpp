// SPDX-License-Identifier: Apache-2.0
//
// Fleets in virtual time: requests that arrive and leave at random on devices that share a bus, with and without
// others' traffic on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/sim/SimGroup.h"
#include "tests/conformance/FleetFixture.h"

namespace headrace::serve {
namespace {

using testing::HasSubstr;

const plan::Plan &sharedPlan() {
  static const plan::Plan plan = fleetPlan();
  return plan;
}

std::unique_ptr<core::DeviceGroup> simGroup(size_t devices, double bus) {
  auto group = sim::makeSimGroup(devices, {bus});
  EXPECT_TRUE(group.ok()) << group.status();
  return *std::move(group);
}

std::vector<LoadedFleet::On> instances(const std::vector<Role> &roles) {
  std::vector<LoadedFleet::On> on;
  for (size_t i = 0; i < roles.size(); ++i)
    on.push_back({"gpu" + std::to_string(i), roles[i], &sharedPlan()});
  return on;
}

void report(const FleetResult &result) {
  std::printf("admitted %lu refused %lu held %lu iterations %lu changes %lu misses %lu/%lu/%lu ttft misses %lu/%lu/%lu "
              "losses %lu, %.1f ms, freed %.0f bytes\n",
              result.admitted, result.refused, result.held, result.iterations, result.changes, result.misses.busLost,
              result.misses.kvBlocks, result.misses.other, result.ttftMisses.busLost, result.ttftMisses.kvBlocks,
              result.ttftMisses.other, result.bandwidthLosses, (result.endNs - result.startNs) * 1e-6,
              result.freedByteSeconds / ((result.endNs - result.startNs) * 1e-9));
  std::map<std::string, int> why;
  for (const RequestOutcome &o : result.requests)
    if (!o.status.ok()) {
      std::string w(o.status.message());
      std::string k;
      for (char c : w)
        if (!isdigit(c) && c != 46)
          k += c;
      ++why[k.substr(0, 130)];
    }
  for (auto &[w, n] : why)
    std::printf("  %d x %s\n", n, w.c_str());
}

TEST(FleetSim, NothingThatWasAdmittedMissesItsObjectives) {
  for (const std::vector<Role> &roles : {std::vector<Role>{Role::Both, Role::Both},
                                         {Role::Both, Role::Both, Role::Both, Role::Both},
                                         {Role::Prefill, Role::Decode, Role::Decode},
                                         {Role::Prefill, Role::Prefill, Role::Decode, Role::Decode}}) {
    std::mt19937 random(7);
    const auto requests = randomRequests(sharedPlan(), {.requests = 900, .meanGapNs = 6e6}, random);
    std::vector<std::string> log;
    FleetOptions fo{.busBandwidth = 1.6e9}; fo.keepRetreat=getenv("NORETREAT")==nullptr;
    fo.onIteration = [&](const FleetIteration &i) {
      char b[300];
      snprintf(b, 300, "inst %u req %u pl %u var %u prefill %d changed %d launch %ld vis %ld gap %ld slo %.0f",
               i.instance, i.request, i.placement, i.variant, i.prefill, i.changed, i.launchNs, i.visibleNs,
               i.longestGapNs, requests[i.request].tpotNs);
      log.push_back(b);
      if (i.missed != MissCause::None)
        for (size_t k = log.size() > 14 ? log.size() - 14 : 0; k < log.size(); ++k)
          puts(log[k].c_str());
    };
    LoadedFleet fleet(simGroup(roles.size(), 1.6e9), instances(roles), fo);
    const auto result = fleet->run(requests);
    ASSERT_TRUE(result.ok()) << result.status();
    report(*result);
    EXPECT_GE(result->iterations, 10'000u);
    EXPECT_EQ(result->misses.total(), 0u);
    EXPECT_EQ(result->ttftMisses.total(), 0u);
    EXPECT_EQ(result->held, result->admitted);
    EXPECT_EQ(result->bandwidthLosses, 0u);
    EXPECT_GT(result->changes, 0u);
    EXPECT_GT(result->freedByteSeconds, 0);
  }
}

} // namespace
} // namespace headrace::serve
