// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/AssignRing.h"

#include <algorithm>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <rapidcheck/gtest.h>

namespace headrace::algorithms {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kB = kRingAlign; // sizes below are in multiples of it
std::vector<uint64_t> times(const std::vector<uint64_t> &counts) {
  std::vector<uint64_t> bytes;
  for (uint64_t count : counts)
    bytes.push_back(count * kB);
  return bytes;
}

TEST(AssignRing, OneLapHoldsAllOneBehindTheOther) {
  const RingAssignment ring = assignRing(times({3, 1, 2}), 1);
  EXPECT_EQ(ring.bytes, 6 * kB);
  EXPECT_THAT(ring.offset, ElementsAre(0, 3 * kB, 4 * kB));
  EXPECT_THAT(ring.lapBegin, ElementsAre(0));
}

TEST(AssignRing, TheLargestLapIsAsSmallAsItCanBe) {
  // 4 1 | 2 3 | 5: the largest is 5. 15 / 3 = 5: no partition does with less.
  const RingAssignment ring = assignRing(times({4, 1, 2, 3, 5}), 3);
  EXPECT_EQ(ring.bytes, 5 * kB);
  EXPECT_THAT(ring.lapBegin, ElementsAre(0, 2, 4));
  EXPECT_THAT(ring.offset, ElementsAre(0, 4 * kB, 0, 2 * kB, 0));
  // Two laps: 4 1 2 | 3 5 takes 8, 4 1 2 3 | 5 takes 10.
  EXPECT_THAT(assignRing(times({4, 1, 2, 3, 5}), 2).lapBegin, ElementsAre(0, 3));
  // More laps than three make no smaller ring: the largest unit is 5. So there are three.
  EXPECT_THAT(assignRing(times({4, 1, 2, 3, 5}), 5).lapBegin, ElementsAre(0, 2, 4));
}

TEST(AssignRing, LapsThatNeedNotBeFullAreEven) {
  // Seven of a size in three laps: 3 must lie in one; 3 2 2 and not 3 3 1, where the last would lie behind itself.
  const RingAssignment ring = assignRing(times({1, 1, 1, 1, 1, 1, 1}), 3);
  EXPECT_EQ(ring.bytes, 3 * kB);
  EXPECT_THAT(ring.lapBegin, ElementsAre(0, 2, 5)); // even cuts: 7/3 = 2.3 and 14/3 = 4.7
}

TEST(AssignRing, RoundsUnitsUp) {
  // 100 and 300 take 256 and 512.
  const RingAssignment ring = assignRing({100, 300, 256}, 1);
  EXPECT_THAT(ring.offset, ElementsAre(0, 256, 768));
  EXPECT_EQ(ring.bytes, 1024u);
}

TEST(AssignRingWithin, TakesTheFewestLapsThatFit) {
  const std::vector<uint64_t> units = times({2, 2, 2, 2, 2});
  EXPECT_THAT(assignRingWithin(units, 10 * kB)->lapBegin, ElementsAre(0));
  // 9: two laps, which need only 6.
  EXPECT_EQ(assignRingWithin(units, 9 * kB)->lapBegin.size(), 2u);
  EXPECT_EQ(assignRingWithin(units, 9 * kB)->bytes, 6 * kB);
  EXPECT_EQ(assignRingWithin(units, 2 * kB)->lapBegin.size(), 5u);
  EXPECT_EQ(assignRingWithin(units, 2 * kB - 1), std::nullopt);
}

TEST(AssignRingWithin, NoUnitsNeedNoRing) { EXPECT_EQ(assignRingWithin({}, 0)->bytes, 0u); }

TEST(RingTimes, AUnitWaitsForWhatItOverlapsInTheLapBefore) {
  // Laps [2 2] [3 1] of a ring of 4: the 3 lies over both units of lap 0, the 1 over the second. Round again the first
  // 2 lies over the 3 only, the second over the 3 and the 1.
  const std::vector<uint64_t> units = times({2, 2, 3, 1});
  const RingTimes ring = ringTimes(assignRing(units, 2), units, {10, 20, 30, 40});
  EXPECT_THAT(ring.freeAfter, ElementsAre(-1, -1, 20, 20));
  EXPECT_THAT(ring.tailFreeAfter, ElementsAre(30, 40));
}

TEST(RingTimes, BeyondAShortLapLiesWhatWasThereBefore) {
  // Laps [3] [1] [3]: of the ring's 3, lap 1 covers the first; lap 2 lies over it and over the rest of lap 0.
  const std::vector<uint64_t> units = times({3, 1, 3});
  RingAssignment ring;
  ring.bytes = 3 * kB;
  ring.offset = {0, 0, 0};
  ring.lapBegin = {0, 1, 2};
  const RingTimes found = ringTimes(ring, units, {10, 20, 30});
  EXPECT_THAT(found.freeAfter, ElementsAre(-1, 10, 20));
  EXPECT_THAT(found.tailFreeAfter, ElementsAre(30));
}

// The smallest largest lap over all ways to cut, by trying every first lap.
uint64_t bruteForce(const std::vector<uint64_t> &bytes, size_t from, size_t laps) {
  if (from == bytes.size())
    return laps == 0 ? 0 : std::numeric_limits<uint64_t>::max();
  if (laps == 0)
    return std::numeric_limits<uint64_t>::max();
  uint64_t best = std::numeric_limits<uint64_t>::max(), lap = 0;
  for (size_t end = from + 1; end <= bytes.size(); ++end) {
    lap += (bytes[end - 1] + kB - 1) / kB * kB;
    best = std::min(best, std::max(lap, bruteForce(bytes, end, laps - 1)));
  }
  return best;
}

RC_GTEST_PROP(AssignRing, IsTheOptimumOfTheLinearPartition, ()) {
  const auto units = *rc::gen::withSize([](int) {
    return rc::gen::resize(
        10, rc::gen::nonEmpty(rc::gen::container<std::vector<uint64_t>>(rc::gen::inRange<uint64_t>(1, 3000))));
  });
  const size_t laps = *rc::gen::inRange<size_t>(1, units.size() + 1);
  const RingAssignment ring = assignRing(units, laps);
  RC_ASSERT(ring.bytes == bruteForce(units, 0, laps));
  // With the fewest laps of that size; which are those of a ring of that size.
  RC_ASSERT(ring.lapBegin.size() <= laps);
  RC_ASSERT(ring.lapBegin.size() == 1 || bruteForce(units, 0, ring.lapBegin.size() - 1) > ring.bytes);
  RC_ASSERT(assignRingWithin(units, ring.bytes)->offset == ring.offset);
  // Laps are runs of units, one behind the other from byte 0 on, inside the ring.
  for (size_t lap = 0; lap < ring.lapBegin.size(); ++lap) {
    const size_t end = lap + 1 < ring.lapBegin.size() ? ring.lapBegin[lap + 1] : units.size();
    RC_ASSERT(ring.lapBegin[lap] < end);
    uint64_t at = 0;
    for (size_t unit = ring.lapBegin[lap]; unit < end; ++unit) {
      RC_ASSERT(ring.offset[unit] == at);
      at += (units[unit] + kB - 1) / kB * kB;
    }
    RC_ASSERT(at <= ring.bytes);
  }
}

// Byte by byte (in multiples of the alignment): who was there last.
RC_GTEST_PROP(RingTimes, AreThoseOfEveryByte, ()) {
  const auto counts = *rc::gen::nonEmpty(rc::gen::container<std::vector<uint64_t>>(rc::gen::inRange<uint64_t>(1, 9)));
  const std::vector<uint64_t> units = times(counts);
  const RingAssignment ring = assignRing(units, *rc::gen::inRange<size_t>(1, units.size() + 1));
  std::vector<uint32_t> lastUse;
  for (size_t i = 0; i < units.size(); ++i)
    lastUse.push_back((lastUse.empty() ? 0 : lastUse.back()) + *rc::gen::inRange(0u, 3u));
  const RingTimes found = ringTimes(ring, units, lastUse);
  std::vector<int64_t> owner(ring.bytes / kB, -1);
  const auto latest = [&](size_t unit) {
    int64_t step = -1;
    for (uint64_t at = ring.offset[unit] / kB; at < (ring.offset[unit] + units[unit]) / kB; ++at)
      step = std::max(step, owner[at]);
    return step;
  };
  for (size_t unit = 0; unit < units.size(); ++unit) {
    RC_ASSERT(found.freeAfter[unit] == latest(unit));
    for (uint64_t at = ring.offset[unit] / kB; at < (ring.offset[unit] + units[unit]) / kB; ++at)
      owner[at] = lastUse[unit];
  }
  for (size_t unit = 0; unit < found.tailFreeAfter.size(); ++unit)
    RC_ASSERT(found.tailFreeAfter[unit] == latest(unit));
  RC_ASSERT(found.tailFreeAfter.size() == (ring.lapBegin.size() > 1 ? ring.lapBegin[1] : units.size()));
}

} // namespace
} // namespace headrace::algorithms
