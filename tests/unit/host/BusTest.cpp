// SPDX-License-Identifier: Apache-2.0
//
// Speeds in GB/s are bytes per nanosecond.
#include "runtime/host/Bus.h"

#include <gtest/gtest.h>

namespace headrace::host {
namespace {

constexpr Direction kIn = Direction::HostToDevice, kOut = Direction::DeviceToHost;

// Lets time pass beyond the ends of these copies.
void pass(Bus &bus, int64_t toNs, std::initializer_list<std::pair<uint32_t, Direction>> copies) {
  for (size_t i = 0; i <= copies.size(); ++i) {
    bus.advance(toNs);
    for (const auto &[link, direction] : copies)
      if (bus.ended(link, direction))
        bus.takeEnd(link, direction);
  }
}

TEST(Bus, ACopyTakesLatencyAndBytesByBandwidth) {
  Bus bus;
  const uint32_t link = bus.addLink({.h2d = 2e9, .d2h = 1e9, .latencyNs = 10});
  bus.start(link, kIn, 1000, 100);
  EXPECT_EQ(bus.arrivalNs(link, kIn, 1000), 610); // 100 + 10 + 1000 / 2
  EXPECT_EQ(bus.arrivalNs(link, kIn, 0), 110);
  bus.advance(109);
  EXPECT_EQ(bus.arrived(link, kIn), 0u);
  bus.advance(210); // 100 ns of flow
  EXPECT_EQ(bus.arrived(link, kIn), 200u);
  EXPECT_EQ(bus.arrivalNs(link, kIn, 400), 310);
  bus.advance(5000);
  EXPECT_EQ(bus.arrived(link, kIn), 1000u);
  EXPECT_EQ(bus.arrivalNs(link, kIn, 1000), 610); // when it was, however late one asks
}

TEST(Bus, ACopyBehindAnotherStartsAtItsEndHoweverLateOneLooks) {
  Bus bus;
  const uint32_t link = bus.addLink({.h2d = 1e9, .d2h = 1e9});
  bus.start(link, kIn, 100, 0);
  bus.advance(430); // seen 330 ns after its end
  EXPECT_TRUE(bus.ended(link, kIn));
  bus.takeEnd(link, kIn);
  bus.start(link, kIn, 100, bus.arrivalNs(link, kIn, 100));
  EXPECT_EQ(bus.arrivalNs(link, kIn, 100), 200);
  bus.advance(130);
  EXPECT_EQ(bus.arrived(link, kIn), 30u);
  bus.advance(430); // so late that it is over
  EXPECT_EQ(bus.arrivalNs(link, kIn, 100), 200);
}

// Both rows of a direction have 1 byte/ns of its 2 while both flow; the other direction has what both leave of 3.
TEST(Bus, ACopyBesideLaunchesSharesItsDirectionHalfAndHalf) {
  Bus bus;
  const uint32_t link = bus.addLink({.h2d = 2e9, .d2h = 2e9, .both = 3e9});
  bus.start(link, kIn, 300, 0);
  bus.start(link, kIn, 100, 50, CopyRow::Beside); // 100 of 300 have arrived
  EXPECT_EQ(bus.arrivalNs(link, kIn, 100, CopyRow::Beside), 150);
  EXPECT_EQ(bus.arrivalNs(link, kIn, 300), 250);
  bus.advance(1000); // stays at the end of the one beside
  EXPECT_TRUE(bus.ended(link, kIn, CopyRow::Beside));
  EXPECT_EQ(bus.arrivalNs(link, kIn, 100, CopyRow::Beside), 150);
  EXPECT_EQ(bus.arrived(link, kIn), 200u);
  EXPECT_EQ(bus.arrivalNs(link, kIn, 300), 200); // the last 100 at 2
  bus.takeEnd(link, kIn, CopyRow::Beside);
  bus.start(link, kOut, 150, 150, CopyRow::Beside);
  EXPECT_EQ(bus.arrivalNs(link, kOut, 150, CopyRow::Beside), 250); // 1.5 each
}

TEST(Bus, LatenessDoesNotGiveAwayTheSameBytesTwice) {
  Bus bus({.h2d = 2e9});
  const uint32_t a = bus.addLink({.h2d = 2e9, .d2h = 2e9}), b = bus.addLink({.h2d = 2e9, .d2h = 2e9});
  bus.start(a, kIn, 100, 0); // 1 byte/ns each
  bus.start(b, kIn, 300, 0);
  bus.advance(1000); // stays at a's end
  EXPECT_EQ(bus.arrived(b, kIn), 100u);
  bus.takeEnd(a, kIn);
  bus.start(a, kIn, 100, 100); // so they go on sharing
  bus.advance(1000);
  EXPECT_EQ(bus.arrivalNs(a, kIn, 100), 200);
  EXPECT_EQ(bus.arrived(b, kIn), 200u);
  bus.takeEnd(a, kIn); // nothing behind it: b has all
  bus.advance(1000);
  EXPECT_EQ(bus.arrivalNs(b, kIn, 300), 250);
}

TEST(Bus, ACopyMayStartAfterAnEndThatIsNotTaken) {
  Bus bus({.h2d = 1e9});
  const uint32_t a = bus.addLink({.h2d = 1e9, .d2h = 1e9}), b = bus.addLink({.h2d = 1e9, .d2h = 1e9});
  bus.start(a, kIn, 100, 0);
  bus.start(b, kIn, 100, 150); // the bus stands at 100
  bus.takeEnd(a, kIn);
  bus.start(a, kIn, 100, 100); // alone until 150
  bus.advance(150);
  EXPECT_EQ(bus.arrived(a, kIn), 50u);
  EXPECT_EQ(bus.arrivalNs(a, kIn, 100), 250);
}

TEST(Bus, BothDirectionsShareTheLinksLimit) {
  Bus bus;
  const uint32_t link = bus.addLink({.h2d = 2e9, .d2h = 2e9, .both = 2e9});
  bus.start(link, kIn, 1000, 0);
  bus.start(link, kOut, 200, 100); // in: 200 bytes alone, then 1 byte/ns each
  bus.advance(300);                // out's 200 bytes are through
  EXPECT_EQ(bus.arrivalNs(link, kOut, 200), 300);
  EXPECT_EQ(bus.arrived(link, kIn), 400u);
  EXPECT_EQ(bus.arrivalNs(link, kIn, 1000), 600); // the rest alone: 600 at 2
}

TEST(Bus, ASlowDirectionLeavesTheRestOfTheLinkToTheOther) {
  Bus bus;
  const uint32_t link = bus.addLink({.h2d = 4e9, .d2h = 1e9, .both = 4e9});
  bus.start(link, kOut, 1000, 0);
  bus.start(link, kIn, 1000, 0);
  bus.advance(100);
  EXPECT_EQ(bus.arrived(link, kOut), 100u); // 1, below a fair 2
  EXPECT_EQ(bus.arrived(link, kIn), 300u);  // 4 - 1
}

TEST(Bus, LinksShareTheBusFairly) {
  Bus bus({.both = 3e9});
  const uint32_t a = bus.addLink({.h2d = 2e9, .d2h = 2e9}), b = bus.addLink({.h2d = 2e9, .d2h = 2e9});
  bus.start(a, kIn, 600, 0);
  bus.start(b, kIn, 300, 0);
  bus.advance(200); // 1.5 each; b is through, a has 300 left for 2 bytes/ns
  EXPECT_EQ(bus.arrived(b, kIn), 300u);
  EXPECT_EQ(bus.arrivalNs(a, kIn, 600), 350);
}

TEST(Bus, ChangesBetweenTwoLooksAreNotMissed) {
  // The same as above in one step: rates change at 200 inside it.
  Bus bus({.both = 3e9});
  const uint32_t a = bus.addLink({.h2d = 2e9, .d2h = 2e9}), b = bus.addLink({.h2d = 2e9, .d2h = 2e9});
  bus.start(a, kIn, 600, 0);
  bus.start(b, kIn, 300, 0);
  pass(bus, 10000, {{a, kIn}, {b, kIn}});
  EXPECT_EQ(bus.arrivalNs(b, kIn, 300), 200);
  EXPECT_EQ(bus.arrivalNs(a, kIn, 600), 350);
}

TEST(Bus, DirectionsHaveLimitsOfTheirOwn) {
  Bus bus({.h2d = 2e9, .d2h = 1e9});
  const uint32_t a = bus.addLink({.h2d = 2e9, .d2h = 2e9}), b = bus.addLink({.h2d = 2e9, .d2h = 2e9});
  bus.start(a, kIn, 1000, 0);
  bus.start(b, kIn, 1000, 0);
  bus.start(b, kOut, 1000, 0);
  bus.advance(100);
  EXPECT_EQ(bus.arrived(a, kIn), 100u); // 2 / 2
  EXPECT_EQ(bus.arrived(b, kIn), 100u);
  EXPECT_EQ(bus.arrived(b, kOut), 100u);
}

TEST(Bus, ALimitThatChangesInMidCopyCountsFromThen) {
  Bus bus({.h2d = 2e9});
  const uint32_t link = bus.addLink({.h2d = 2e9, .d2h = 2e9, .latencyNs = 10});
  bus.start(link, kIn, 600, 0);
  bus.setH2d(0.5e9, 110); // 200 are there
  EXPECT_EQ(bus.arrivalNs(link, kIn, 600), 910);
  bus.setH2d(1e9, 310); // 300
  EXPECT_EQ(bus.arrivalNs(link, kIn, 600), 610);
  bus.advance(1000);
  EXPECT_EQ(bus.arrivalNs(link, kIn, 600), 610);
}

TEST(Bus, CountsTheTimeInWhichItSlowsCopiesToDevices) {
  Bus bus({.h2d = 3e9});
  const uint32_t a = bus.addLink({.h2d = 2e9, .d2h = 2e9}), b = bus.addLink({.h2d = 2e9, .d2h = 2e9});
  bus.start(a, kOut, 1000, 0); // the other direction has no limit here
  bus.start(a, kIn, 600, 0);
  bus.advance(100); // alone: 200 are there
  EXPECT_EQ(bus.slowed().ns, 0);
  bus.start(b, kIn, 300, 100); // 1.5 each for 200 ns, then a's last 100 alone
  pass(bus, 1000, {{a, kIn}, {b, kIn}, {a, kOut}});
  EXPECT_EQ(bus.slowed().ns, 200);
  EXPECT_EQ(bus.slowed().bytes, 600);
}

// What the bus takes from copies to the host is no loss of copies to devices, which have all of their link.
TEST(Bus, SlowedCopiesToTheHostDoNotCount) {
  Bus bus({.d2h = 1e9});
  const uint32_t link = bus.addLink({.h2d = 2e9, .d2h = 2e9});
  bus.start(link, kOut, 600, 0); // 1 in place of 2
  bus.start(link, kIn, 1000, 0); // 2
  pass(bus, 1000, {{link, kIn}, {link, kOut}});
  EXPECT_EQ(bus.arrivalNs(link, kOut, 600), 600);
  EXPECT_EQ(bus.arrivalNs(link, kIn, 1000), 500);
  EXPECT_EQ(bus.slowed().ns, 0);
  EXPECT_EQ(bus.slowed().bytes, 0);
}

TEST(Bus, ALinkAtItsOwnLimitIsNotSlowedByTheBus) {
  Bus bus({.h2d = 3e9});
  for (int i = 0; i < 3; ++i)
    bus.start(bus.addLink({.h2d = 1e9, .d2h = 1e9}), kIn, 700, 0);
  pass(bus, 700, {{0, kIn}, {1, kIn}, {2, kIn}});
  EXPECT_EQ(bus.arrived(2, kIn), 700u);
  EXPECT_EQ(bus.slowed().ns, 0);
}

TEST(Bus, ALinkCanBeGivenOtherSpeeds) {
  Bus bus;
  const uint32_t link = bus.addLink({.h2d = 1e9, .d2h = 1e9});
  bus.start(link, kIn, 100, 0);
  bus.advance(100);
  bus.setLink(link, {.h2d = 4e9, .d2h = 1e9});
  bus.start(link, kIn, 100, 100);
  EXPECT_EQ(bus.arrivalNs(link, kIn, 100), 125);
}

TEST(Bus, WithoutBytesOnlyTheLatencyIsLeft) {
  Bus bus;
  const uint32_t link = bus.addLink({.h2d = 1e9, .d2h = 1e9, .latencyNs = 7});
  bus.start(link, kIn, 0, 50);
  bus.advance(56);
  EXPECT_EQ(bus.arrivalNs(link, kIn, 0), 57);
  bus.advance(60);
  EXPECT_EQ(bus.arrivalNs(link, kIn, 0), 57);
}

TEST(Bus, NothingLimitsAnUnlimitedLink) {
  Bus bus;
  const uint32_t link = bus.addLink({});
  bus.start(link, kIn, 1u << 30, 5);
  bus.advance(6);
  EXPECT_EQ(bus.arrivalNs(link, kIn, 1u << 30), 5);
}

} // namespace
} // namespace headrace::host
