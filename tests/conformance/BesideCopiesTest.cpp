// SPDX-License-Identifier: Apache-2.0
//
// What every device must do with copies beside launches: between a region of 32 KiB at the end of the arena, which no
// launch touches, and swap memory of as much.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/core/MetaWriter.h"
#include "tests/conformance/DevicesUnderTest.h"
#include "tests/support/TinyPlan.h"

namespace headrace::core {
namespace {

using testing::HasSubstr;

constexpr uint64_t kKiB = 1024, kRegion = 32 * kKiB;

class BesideCopies : public testing::TestWithParam<DeviceUnderTest> {
protected:
  BesideCopies() : device_(GetParam().make()) {
    plan_ = tinyPlan({.spec = tinyLlama(4), .offloaded = {1, 3}, .kind = GetParam().plansFor});
    region_ = plan_.arenaBytes;
    plan_.arenaBytes += kRegion;
  }
  void open(uint64_t swap = kRegion, double linkBandwidth = 0) {
    absl::Status status = device_->open(plan_, {.linkBandwidth = GetParam().pacesCopies ? linkBandwidth : 0});
    ASSERT_TRUE(status.ok()) << status;
    if (swap > 0) {
      status = device_->reserveSwap(swap);
      ASSERT_TRUE(status.ok()) << status;
    }
    auto graph = device_->build({});
    ASSERT_TRUE(graph.ok()) << graph.status();
    graph_ = *std::move(graph);
    ASSERT_TRUE(device_->upload(*graph_).ok());
  }
  // On a device that keeps no data but homes: not while the region has any.
  void launchWhereDataStays() {
    if (GetParam().keepsData)
      launch();
  }
  void launch() {
    const int32_t token = 1, block = 1;
    const SequenceRows rows{.tokens = {&token, 1}, .blocks = {&block, 1}, .sample = true};
    absl::Status status = writeMeta(plan_.metaLayout, plan_.blockTokens, {&rows, 1}, device_->meta());
    ASSERT_TRUE(status.ok()) << status;
    status = device_->launch(*graph_);
    ASSERT_TRUE(status.ok()) << status;
  }
  // Of the region's byte `device` and swap memory's byte `swap`.
  BlockCopy copy(bool toDevice, uint64_t device, uint64_t swap, uint64_t bytes) const {
    return {toDevice, region_ + device, swap, bytes};
  }
  uint64_t ask(const std::vector<BlockCopy> &copies) {
    const auto ticket = device_->copyBeside(copies);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    return ticket.value_or(0);
  }
  static std::byte value(uint64_t i) { return static_cast<std::byte>(1 + i % 250); }
  std::vector<std::byte> region() {
    std::vector<std::byte> bytes(kRegion);
    EXPECT_TRUE(device_->readDevice(region_, absl::MakeSpan(bytes)).ok());
    return bytes;
  }

  plan::Plan plan_;
  uint64_t region_ = 0;
  std::unique_ptr<Graph> graph_; // outlives its launches
  std::shared_ptr<Device> device_;
};

TEST_P(BesideCopies, MoveTheirBytesAndNoOthers) {
  open();
  EXPECT_EQ(device_->swapMemory().size(), device_->holdsData() ? kRegion : 0);
  if (!device_->holdsData())
    return;
  std::vector<std::byte> bytes(kRegion);
  for (uint64_t i = 0; i < kRegion; ++i)
    bytes[i] = value(i);
  ASSERT_TRUE(device_->writeDevice(region_, bytes).ok());
  std::fill(device_->swapMemory().begin(), device_->swapMemory().end(), std::byte{0});
  launchWhereDataStays();
  const uint64_t out = ask({copy(false, 0, 5 * kKiB, 3 * kKiB), copy(false, 7 * kKiB, 100, 77)});
  launchWhereDataStays();
  ASSERT_TRUE(device_->awaitCopied(out).ok());
  for (uint64_t i = 0; i < kRegion; ++i) {
    const bool first = i >= 5 * kKiB && i < 8 * kKiB, second = i >= 100 && i < 177;
    const std::byte expected = first ? value(i - 5 * kKiB) : second ? value(i - 100 + 7 * kKiB) : std::byte{0};
    ASSERT_EQ(device_->swapMemory()[i], expected) << i;
  }
  const uint64_t in = ask({copy(true, 20 * kKiB, 6 * kKiB, kKiB), copy(true, 31 * kKiB + 1, 100, 50)});
  launchWhereDataStays();
  ASSERT_TRUE(device_->awaitCopied(in).ok());
  ASSERT_TRUE(device_->drain().ok());
  std::copy_n(bytes.begin() + kKiB, kKiB, bytes.begin() + 20 * kKiB);
  std::copy_n(bytes.begin() + 7 * kKiB, 50, bytes.begin() + 31 * kKiB + 1);
  EXPECT_EQ(region(), bytes);
}

// Copies of one direction that use the same bytes: the last one's are there.
TEST_P(BesideCopies, ThoseOfADirectionRunInTheOrderAskedFor) {
  open();
  if (!device_->holdsData())
    return;
  for (uint64_t i = 0; i < kRegion; ++i)
    device_->swapMemory()[i] = static_cast<std::byte>(i / kKiB);
  std::vector<uint64_t> tickets;
  for (uint64_t n = 0; n < 32; ++n) {
    tickets.push_back(ask({copy(true, 0, n * kKiB, kKiB), copy(true, 4 * kKiB, (31 - n) * kKiB, kKiB)}));
    if (n % 4 == 0)
      launchWhereDataStays();
  }
  for (uint64_t n = 0; n < 32; ++n)
    EXPECT_EQ(tickets[n], n + 1);
  ASSERT_TRUE(device_->drain().ok()); // waits for them too
  for (const uint64_t ticket : tickets)
    EXPECT_TRUE(*device_->copied(ticket));
  const std::vector<std::byte> there = region();
  EXPECT_EQ(there[0], std::byte{31});
  EXPECT_EQ(there[4 * kKiB], std::byte{0});
}

// However many there are, and though each may arrive while it is looked at.
TEST_P(BesideCopies, OfAByteEachAllArrive) {
  open();
  if (!device_->holdsData())
    return;
  ASSERT_TRUE(device_->writeDevice(region_, std::vector<std::byte>(kRegion)).ok());
  for (uint64_t i = 0; i < kRegion; ++i)
    device_->swapMemory()[i] = value(i);
  for (uint64_t n = 0; n < 4000; n += 40) {
    std::vector<BlockCopy> copies;
    for (uint64_t i = n; i < n + 40; ++i)
      copies.push_back(copy(true, 3 * i, 5 * i, 1));
    ask(copies);
    launchWhereDataStays();
  }
  ASSERT_TRUE(device_->drain().ok());
  const std::vector<std::byte> there = region();
  for (uint64_t i = 0; i < 4000; ++i)
    ASSERT_EQ(there[3 * i], value(5 * i)) << i;
}

// What is behind launches reads what they have written: the output of an iteration.
TEST_P(BesideCopies, StartOnceTheLaunchesBeforeHaveEnded) {
  open();
  if (!device_->holdsData())
    return;
  const uint32_t output = plan_.ioBuffer(plan::Io::Output);
  uint64_t address = 0;
  for (const plan::Extent &extent : plan_.placements[0].extents)
    if (extent.buffer == output)
      address = extent.address;
  for (uint64_t n = 1; n <= 20; ++n) {
    const int32_t poison = -5;
    ASSERT_TRUE(device_->writeDevice(address, {reinterpret_cast<const std::byte *>(&poison), 4}).ok());
    launch();
    const auto ticket = device_->copyBeside({{BlockCopy{false, address, 0, 4}}});
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    ASSERT_TRUE(device_->awaitCopied(*ticket).ok());
    int32_t copied = poison;
    std::copy_n(device_->swapMemory().begin(), 4, reinterpret_cast<std::byte *>(&copied));
    const auto tokens = device_->awaitTokens(n);
    ASSERT_TRUE(tokens.ok()) << tokens.status();
    EXPECT_EQ(copied, (*tokens)[0]);
  }
}

TEST_P(BesideCopies, CountAsBytesOfTheLink) {
  open();
  launch();
  ASSERT_TRUE(device_->drain().ok());
  const DeviceCounters before = device_->counters();
  ask({copy(false, 0, 0, 1000), copy(true, 2 * kKiB, 2 * kKiB, 77), copy(false, 0, 0, 24)});
  ask({copy(true, 2 * kKiB, 2 * kKiB, 23)});
  ASSERT_TRUE(device_->drain().ok());
  EXPECT_EQ(device_->counters().d2hBytes - before.d2hBytes, 1024u);
  EXPECT_EQ(device_->counters().h2dBytes - before.h2dBytes, 100u);
  EXPECT_EQ(device_->counters().launches, before.launches);
}

TEST_P(BesideCopies, RefuseMisuseByName) {
  EXPECT_EQ(device_->reserveSwap(1).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(device_->copied(1).status().code(), absl::StatusCode::kFailedPrecondition);
  open(/*swap=*/0);
  const auto refused = [&](const BlockCopy &one) { return device_->copyBeside({{one}}).status(); };
  EXPECT_EQ(refused(copy(false, 0, 0, 1)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused(copy(false, 0, 0, 1)).message()), HasSubstr("no swap memory is reserved"));
  ASSERT_TRUE(device_->reserveSwap(kRegion).ok());
  EXPECT_EQ(device_->copyBeside({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused(copy(false, 0, 0, 0)).code(), absl::StatusCode::kInvalidArgument);
  constexpr uint64_t kFar = ~uint64_t{0};
  for (const BlockCopy &one : {copy(false, kRegion, 0, 1), copy(true, 0, 0, kRegion + 1), BlockCopy{true, kFar, 0, 2},
                               BlockCopy{false, 0, 0, kFar}}) {
    EXPECT_EQ(refused(one).code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(refused(one).message()), HasSubstr("outside the arena"));
  }
  for (const BlockCopy &one : {copy(false, 0, kRegion, 1), copy(true, 0, 1, kRegion), BlockCopy{true, 0, kFar, 1}}) {
    EXPECT_EQ(refused(one).code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(refused(one).message()), HasSubstr("outside the swap memory"));
  }
  EXPECT_EQ(device_->copied(1).status().code(), absl::StatusCode::kFailedPrecondition); // none of these was one
  const uint64_t ticket = ask({copy(false, 0, 0, 1)});
  for (const uint64_t other : {uint64_t{0}, ticket + 1}) {
    EXPECT_THAT(std::string(device_->copied(other).status().message()), HasSubstr("1 were given"));
    EXPECT_EQ(device_->awaitCopied(other).code(), absl::StatusCode::kFailedPrecondition);
  }
  ASSERT_TRUE(device_->awaitCopied(ticket).ok());
}

TEST_P(BesideCopies, MemoryThatLacksIsNamed) {
  open();
  const absl::Status status = device_->reserveSwap(uint64_t{1} << 55);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("36028797018963968"));
  EXPECT_EQ(device_->copyBeside({{copy(false, 0, 0, 1)}}).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(device_->reserveSwap(kKiB).ok()); // and may be asked for again
  ASSERT_TRUE(device_->awaitCopied(ask({copy(false, 0, 0, kKiB)})).ok());
  ASSERT_TRUE(device_->reserveSwap(0).ok());
  EXPECT_TRUE(device_->swapMemory().empty());
}

TEST_P(BesideCopies, OpeningAgainGivesAllUp) {
  open();
  launch();
  ask({copy(false, 0, 0, kRegion)});
  open(/*swap=*/0);
  EXPECT_TRUE(device_->swapMemory().empty());
  EXPECT_EQ(device_->copied(1).status().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(device_->reserveSwap(kRegion).ok());
  EXPECT_EQ(ask({copy(false, 0, 0, kRegion)}), 1u);
  launchWhereDataStays(); // a launch that poisons writes the region, too
  ASSERT_TRUE(device_->drain().ok());
  EXPECT_TRUE(*device_->copied(1));
}

INSTANTIATE_TEST_SUITE_P(Devices, BesideCopies, testing::ValuesIn(kDevices),
                         [](const auto &info) { return std::string(info.param.name); });

#if !defined(HEADRACE_EMULATED_TESTS) && !defined(HEADRACE_STAND_IN_TESTS)
// Times are exact where they are made up: a microsecond of latency, a nanosecond a byte. Layers 1 and 3 are brought by
// each launch.
class BesideCopiesInVirtualTime : public BesideCopies {
protected:
  // When the tokens of so many launches, two in flight, are visible.
  std::vector<int64_t> visible(uint64_t launches) {
    const int64_t startNs = device_->nowNs();
    std::vector<int64_t> times;
    for (uint64_t n = 1; n <= launches; ++n) {
      launch();
      if (n > 1) {
        EXPECT_TRUE(device_->awaitTokens(n - 1).ok());
        times.push_back(device_->tokensVisibleNs(n - 1) - startNs);
      }
    }
    EXPECT_TRUE(device_->drain().ok());
    return times;
  }
};

TEST_P(BesideCopiesInVirtualTime, AloneTakeLatencyAndBytes) {
  open();
  const int64_t startNs = device_->nowNs();
  const uint64_t one = ask({copy(false, 0, 0, 5000), copy(false, 0, 0, 1000)}), two = ask({copy(false, 0, 0, 500)});
  EXPECT_FALSE(*device_->copied(one));
  ASSERT_TRUE(device_->waitUntil(startNs + 1000 + 5000 + 1000 + 999).ok());
  EXPECT_FALSE(*device_->copied(one));
  ASSERT_TRUE(device_->waitUntil(startNs + 8000).ok());
  EXPECT_TRUE(*device_->copied(one));
  EXPECT_FALSE(*device_->copied(two));
  ASSERT_TRUE(device_->awaitCopied(two).ok());
  EXPECT_EQ(device_->nowNs(), startNs + 8000 + 1500);
  ASSERT_TRUE(device_->awaitCopied(one).ok()); // no time passes
  EXPECT_EQ(device_->nowNs(), startNs + 9500);
}

// The other direction is the link's own: both at once go at duplex / 2 of their rates.
TEST_P(BesideCopiesInVirtualTime, BothDirectionsShareTheDuplexLimit) {
  const double full = plan_.hardware.h2dBandwidth;
  plan_.hardware.duplexBandwidth = 1.5 * full;
  open();
  const int64_t startNs = device_->nowNs();
  // 4,000 ns each at three quarters: both end after 5,333.3.
  const uint64_t both = ask({copy(false, 0, 0, 3000), copy(true, 8 * kKiB, 8 * kKiB, 3000)});
  ASSERT_TRUE(device_->awaitCopied(both).ok());
  EXPECT_EQ(device_->nowNs() - startNs, 5334);
}

// A launch alone takes T and copies for C of it to the device. With a copy of the same direction that is longer than
// the launch, each of its copies goes at half its rate.
TEST_P(BesideCopiesInVirtualTime, TakeTurnsWithTheCopiesOfALaunch) {
  for (plan::Variant &variant : plan_.variants) // compute takes no time: T = C
    for (size_t i = 0; i < variant.durationsNs.size(); ++i)
      variant.durationsNs[i] *= plan_.schedules[variant.schedule].steps[i].kind == plan::StepKind::Copy;
  constexpr uint64_t kMiB = 1024 * kKiB;
  plan_.arenaBytes += kMiB;
  open(kMiB);
  int64_t startNs = device_->nowNs();
  launch();
  ASSERT_TRUE(device_->drain().ok());
  const int64_t alone = device_->nowNs() - startNs;
  startNs = device_->nowNs();
  const auto bytes = static_cast<uint64_t>(alone);
  ASSERT_LT(bytes, kMiB);
  ask({copy(true, 0, 0, bytes / 2), copy(true, 0, 0, bytes / 2), copy(true, 0, 0, 1000)});
  launch();
  ASSERT_TRUE(device_->awaitTokens(2).ok());
  EXPECT_EQ(device_->tokensVisibleNs(2) - startNs, 2 * alone);
  ASSERT_TRUE(device_->drain().ok());
  // All that was to be copied, one after the other: latencies of 1,000 each.
  EXPECT_EQ(device_->nowNs() - startNs, alone + static_cast<int64_t>(bytes / 2 * 2) + 3 * 1000 + 1000);
}

TEST_P(BesideCopiesInVirtualTime, OfTheOtherDirectionDisturbNobodyWhereTheLinkIsFullDuplex) {
  plan_.hardware.duplexBandwidth = 2 * plan_.hardware.h2dBandwidth;
  open();
  const std::vector<int64_t> apart = visible(4);
  open();
  ask({copy(false, 0, 0, kRegion)});
  EXPECT_EQ(visible(4), apart);
}

// One device plays its launches from timelines, a group event by event: in traffic of any kind the times are the same,
// with a link whose directions disturb each other, and copies of launches in both of them.
TEST_P(BesideCopiesInVirtualTime, AreTheSameWhoeverPlaysThem) {
  plan_.hardware.duplexBandwidth = 1.37 * plan_.hardware.h2dBandwidth;
  for (plan::Schedule &schedule : plan_.schedules)
    for (size_t i = 0, copies = 0; i < schedule.steps.size(); ++i)
      if (schedule.steps[i].kind == plan::StepKind::Copy && copies++ % 3 == 1)
        schedule.steps[i].lane = plan::Lane::D2H;
  const auto timesOf = [&](std::shared_ptr<Device> device, uint64_t seed) {
    device_ = std::move(device);
    open();
    std::mt19937_64 random(seed);
    std::vector<int64_t> times;
    const int64_t startNs = device_->nowNs();
    uint64_t launched = 0, awaited = 0, ticket = 0;
    for (int n = 0; n < 60; ++n) {
      switch (random() % 6) {
      case 0:
      case 1:
        if (launched == awaited + 2) {
          EXPECT_TRUE(device_->awaitTokens(++awaited).ok());
        }
        launch();
        ++launched;
        break;
      case 2:
        if (awaited < launched) {
          EXPECT_TRUE(device_->awaitTokens(++awaited).ok());
          times.push_back(device_->tokensVisibleNs(awaited) - startNs);
        }
        break;
      case 3: {
        std::vector<BlockCopy> copies;
        for (uint64_t left = 1 + random() % 4; left > 0; --left)
          copies.push_back(copy(random() % 2 == 0, 0, 0, 1 + random() % kRegion));
        ticket = ask(copies);
        break;
      }
      case 4:
        EXPECT_TRUE(device_->waitUntil(device_->nowNs() + static_cast<int64_t>(random() % 100000)).ok());
        for (uint64_t t = 1; t <= ticket; ++t)
          times.push_back(*device_->copied(t));
        break;
      default:
        if (ticket > 0 && random() % 2 == 0) {
          EXPECT_TRUE(device_->awaitCopied(1 + random() % ticket).ok());
        }
      }
      times.push_back(device_->nowNs() - startNs);
    }
    EXPECT_TRUE(device_->drain().ok());
    times.push_back(device_->nowNs() - startNs);
    return times;
  };
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const std::vector<int64_t> alone = timesOf(sim::makeSimDevice(), seed);
    ASSERT_EQ(timesOf(GetParam().make(), seed), alone) << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, BesideCopiesInVirtualTime, testing::ValuesIn(devicesInVirtualTime()),
                         [](const auto &info) { return std::string(info.param.name); });
#endif

} // namespace
} // namespace headrace::core
