// SPDX-License-Identifier: Apache-2.0
//
// What the coordinator refuses, and by what it says so, on the bus of BusRequests.h.
#include <cmath>

#include <gmock/gmock.h>

#include "tests/unit/serve/BusRequests.h"

namespace headrace::serve {
namespace {

using testing::HasSubstr;

TEST(Coordinator, RefusesABusWithNoDevicesOrNoBandwidth) {
  EXPECT_EQ(messageOf(Coordinator::create(2, {}).status()), "a bus with no devices: expected at least one");
  EXPECT_EQ(Coordinator::create(2, {}).status().code(), absl::StatusCode::kInvalidArgument);
  for (double bandwidth : {0.0, -1.0, std::nan(""), kInfinity}) {
    EXPECT_EQ(Coordinator::create(bandwidth, {{"a", 2, 100}}).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Coordinator::create(2, {{"a", bandwidth, 100}}).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(Coordinator::create(2, std::vector<BusDevice>(65, {"a", 2, 100})).ok());
  // Of the other direction a limit may be none; where there is one it is positive.
  const auto with = [](double link, double share, double d2h, double both) {
    CoordinatorOptions options;
    options.d2hBandwidth = d2h;
    options.bothBandwidth = both;
    return messageOf(Coordinator::create(2, {{"a", 2, 100, link, share}}, options).status());
  };
  EXPECT_EQ(with(kInfinity, 1, kInfinity, kInfinity), "");
  for (double bandwidth : {0.0, -1.0, std::nan("")}) {
    EXPECT_THAT(with(bandwidth, 1, 2, 2), HasSubstr("device a: link bandwidth device to host = "));
    EXPECT_THAT(with(2, bandwidth, 2, 2), HasSubstr("device a: share of a direction while both are at work = "));
    EXPECT_THAT(with(2, 1, bandwidth, 2), HasSubstr("bus bandwidth device to host = "));
    EXPECT_THAT(with(2, 1, 2, bandwidth), HasSubstr("bus bandwidth of both directions together = "));
  }
  EXPECT_THAT(with(2, 1.5, 2, 2), HasSubstr("= 1.5: expected above 0 and at most 1"));
  CoordinatorOptions options;
  options.raiseAfter = 0;
  EXPECT_THAT(messageOf(Coordinator::create(2, {{"a", 2, 100}}, options).status()), HasSubstr("hysteresis"));
}

TEST(Coordinator, RefusesObjectivesThatAreNone) {
  Coordinator c = twoDevices();
  for (double slo : {0.0, -5.0, std::nan(""), kInfinity}) {
    const absl::Status refused = c.arrive(requestFor(0, slo, {0}));
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(messageOf(refused), HasSubstr("device 0 (left): SLO = "));
  }
  for (double waited : {-1.0, std::nan("")}) {
    BusRequest request = requestFor(0, 12, {0});
    request.waitedNs = waited;
    EXPECT_THAT(messageOf(c.arrive(request)), HasSubstr("waited = "));
  }
  EXPECT_EQ(c.state(0), DeviceState::Idle);
}

// Devices without a limit of memory: no message has the largest number in its place.
TEST(Coordinator, NoMessageNamesMemoryThatHasNoLimit) {
  auto made = Coordinator::create(2, {{"left", 2, ~uint64_t{0}}, {"right", 2, ~uint64_t{0}}});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(
      messageOf(made->arrive(requestFor(0, 9, {0, 8}))),
      "device 0 (left): an iteration cannot be held within 9000.000 ms: minimum is 10000.000 ms alone on the bus");
  EXPECT_EQ(*made->measured(1), true);
  EXPECT_EQ(
      messageOf(made->arrive(requestFor(0, 9, {0, 8}))),
      "device 0 (left): an iteration cannot be held within 9000.000 ms: minimum is 10000.000 ms alone on the bus, "
      "of which 1 of 2 bytes/s were measured");
}

TEST(Coordinator, RefusesPlacementsThatAreNone) {
  Coordinator c = twoDevices();
  EXPECT_THAT(messageOf(c.arrive(requestFor(0, 12, {}))), HasSubstr("0 placements: expected from 1"));
  EXPECT_THAT(messageOf(c.arrive(requestFor(7, 12, {0}))), HasSubstr("device 7: the bus has 2"));
  const std::pair<void (*)(BusPlacement &), const char *> faults[] = {
      {[](BusPlacement &p) { p.computeNs = 0; }, "computeNs = 0"},
      {[](BusPlacement &p) { p.computeNs = std::nan(""); }, "computeNs = nan"},
      {[](BusPlacement &p) { p.hiddenNs = -1; }, "hiddenNs = -1"},
      {[](BusPlacement &p) { p.shortestNs = kInfinity; }, "shortestNs = inf"},
      {[](BusPlacement &p) { p.tokens = -1; }, "tokens = -1"},
      {[](BusPlacement &p) { p.linkBytes = ~uint64_t{0}; }, "expected at most 2^53"},
  };
  for (const auto &[change, message] : faults) {
    BusRequest request = requestFor(0, 12, {20});
    change(request.placements[0]);
    EXPECT_EQ(c.arrive(request).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(messageOf(c.arrive(request)), HasSubstr(message));
  }
}

TEST(Coordinator, RefusesADeviceThatIsNotFree) {
  Coordinator c = leftRuns();
  EXPECT_EQ(c.arrive(requestFor(0, 12, {0})).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(c.nextIteration(1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(c.start(1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(c.finish(1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(Coordinator, ARefusalNamesTheMinima) {
  auto made = Coordinator::create(2, {{"small", 2, 85}, {"right", 2, 100}});
  ASSERT_TRUE(made.ok());
  Coordinator &c = *made;
  // Needs 92 and 100 bytes of 85.
  EXPECT_EQ(messageOf(c.arrive(requestFor(0, 12, {0, 8}))),
            "device 0 (small): limited by device memory: 85 bytes, the minimum at any SLO is 92 bytes");
  // 84 bytes take 10 s alone; within 9 s nothing does.
  EXPECT_THAT(messageOf(c.arrive(requestFor(0, 9, {0, 8, 16}))),
              HasSubstr("cannot be held within 9000.000 ms: minimum is 10000.000 ms in 85 bytes alone on the bus, no "
                        "amount of memory meets this SLO alone"));
  // 80 bytes take 12 s; within 11 s only what needs 100 bytes does.
  EXPECT_THAT(
      messageOf(c.arrive(requestFor(0, 11, {0, 20}))),
      HasSubstr("minimum is 12000.000 ms in 85 bytes alone on the bus, minimum memory is 100 bytes at this SLO"));
  EXPECT_EQ(c.arrive(requestFor(0, 11, {0, 20})).code(), absl::StatusCode::kResourceExhausted);
}

TEST(Coordinator, ARefusalForTheBusNamesTheMinimumBesideTheNeighbours) {
  Coordinator c = twoDevices();
  ASSERT_TRUE(c.arrive(requestFor(0, 40, {20})).ok()); // nothing else fits it; 22 s at half the bus
  EXPECT_EQ(*c.start(0), true);
  // 16 bytes at half the bus: 16 s, 8 of them hidden: 18 s.
  EXPECT_EQ(
      messageOf(c.arrive(requestFor(1, 12, {16}))),
      "device 1 (right): limited by the bus: an iteration cannot be held within 12000.000 ms beside 1 neighbour (1 "
      "of 2 bytes/s while all copy): minimum is 18000.000 ms");
  EXPECT_EQ(c.state(1), DeviceState::Idle);
  EXPECT_TRUE(c.arrive(requestFor(1, 18, {16})).ok());
  ASSERT_TRUE(c.finish(1).ok());
  ASSERT_TRUE(c.finish(0).ok());
  ASSERT_TRUE(c.arrive(requestFor(0, 12, {20})).ok()); // to the millisecond what it takes alone
  // At half the bus the neighbour's 20 bytes take 20 s, 8 of them hidden.
  EXPECT_THAT(
      messageOf(c.arrive(requestFor(1, 12, {16}))),
      HasSubstr("at no SLO of its own: device 0 (left) has 12000.000 ms an iteration and would take 22000.000 ms "
                "beside it"));
}

} // namespace
} // namespace headrace::serve
