// SPDX-License-Identifier: Apache-2.0
//
// Requests that come and go at random on random plans (EngineTraffic.h).
#include <cstring>

#include "tests/conformance/DevicesUnderTest.h"
#include "tests/conformance/EngineTraffic.h"

namespace headrace {
namespace {

class EngineOnDevices : public testing::TestWithParam<core::DeviceUnderTest> {};

TEST_P(EngineOnDevices, RequestsGetTheTokensThatTheyGetAlone) {
  const bool emulated = GetParam().plansFor != model::DeviceKind::Host; // a thousand times slower
  // The device that keeps no data by chance shows the most.
  const uint64_t fast = emulated ? 20 : GetParam().keepsData ? 3000 : 6000;
  const uint64_t iterations = longRun() ? (emulated ? 1000 : 100000) : fast;
  Seen sum;
  const uint64_t first = std::strlen(GetParam().name) * 1000000; // most devices have traffic of their own
  for (uint64_t seed = first; sum.iterations < iterations; ++seed) {
    SCOPED_TRACE(testing::Message() << "case " << seed);
    Draw draw(seed);
    Traffic traffic(draw, anyPlan(draw, GetParam().plansFor, GetParam().kvBits), GetParam().make());
    ASSERT_NO_FATAL_FAILURE(traffic.run(emulated ? 6 : 20));
    ASSERT_NO_FATAL_FAILURE(traffic.check(GetParam().make()));
    add(sum, traffic.seen);
  }
  if (!emulated)
    expectAll(sum);
}

// Pie's places: ever fewer and larger, and back, as the engine finds what they are worth.
TEST_P(EngineOnDevices, TokensAreTheSameWhileTheExpansionChanges) {
  const bool emulated = GetParam().plansFor != model::DeviceKind::Host;
  const uint64_t fast = emulated ? 20 : 2000;
  const uint64_t iterations = longRun() ? (emulated ? 500 : 10000) : fast;
  Seen sum;
  for (uint64_t seed = std::strlen(GetParam().name) * 2000000; sum.iterations < iterations; ++seed) {
    SCOPED_TRACE(testing::Message() << "case " << seed);
    Draw draw(seed);
    Traffic traffic(draw, anyPlaces(draw, GetParam().plansFor, GetParam().kvBits), GetParam().make());
    ASSERT_NO_FATAL_FAILURE(traffic.run(emulated ? 6 : 20));
    ASSERT_NO_FATAL_FAILURE(traffic.check(GetParam().make()));
    add(sum, traffic.seen);
  }
  if (emulated)
    return;
  EXPECT_GT(sum.grown, sum.iterations / 200);
  EXPECT_GT(sum.shrunk, sum.iterations / 1000);
  EXPECT_GT(sum.preemptions, sum.iterations / 400);
}

INSTANTIATE_TEST_SUITE_P(Devices, EngineOnDevices,
                         testing::ValuesIn(core::devicesOfPlans(core::devicesWithPackedKvToo())),
                         [](const auto &info) { return std::string(info.param.name); });

#ifndef HEADRACE_EMULATED_TESTS
TEST(EngineInVirtualTime, EveryBlockHasOneOwnerAndComesBack) {
  const uint64_t iterations = longRun() ? 1000000 : 25000;
  Seen sum;
  for (uint64_t seed = 1; sum.iterations < iterations; ++seed) {
    SCOPED_TRACE(testing::Message() << "case " << seed);
    Draw draw(seed);
    Traffic traffic(draw, anyPlan(draw, model::DeviceKind::Host), sim::makeSimDevice());
    ASSERT_NO_FATAL_FAILURE(traffic.run(100));
    add(sum, traffic.seen);
  }
  expectAll(sum);
}
#endif

} // namespace
} // namespace headrace
