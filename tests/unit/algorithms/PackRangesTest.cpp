// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/PackRanges.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <rapidcheck/gtest.h>

namespace headrace::algorithms {
namespace {

bool share(uint64_t a, uint64_t aBytes, uint64_t b, uint64_t bBytes) {
  return aBytes && bBytes && a < b + bBytes && b < a + aBytes;
}

// Live at once and sharing a byte: found by comparing all pairs.
bool conflict(const std::vector<LiveRange> &items, const std::vector<TakenRange> &taken, const Packing &packing) {
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t j = i + 1; j < items.size(); ++j)
      if (items[i].first <= items[j].last && items[j].first <= items[i].last &&
          share(packing.addresses[i], items[i].bytes, packing.addresses[j], items[j].bytes))
        return true;
    for (const TakenRange &t : taken)
      if (items[i].first <= t.last && t.first <= items[i].last &&
          share(packing.addresses[i], items[i].bytes, t.address, t.bytes))
        return true;
  }
  return false;
}

TEST(LargestLiveSum, CountsBothEndsOfALife) {
  // Steps 0-2 and 2-4 meet at step 2: 512 + 256.
  EXPECT_EQ(largestLiveSum(std::vector<LiveRange>{{512, 0, 2}, {256, 2, 4}}), 768u);
  EXPECT_EQ(largestLiveSum(std::vector<LiveRange>{{512, 0, 1}, {256, 2, 4}}), 512u);
  EXPECT_EQ(largestLiveSum(std::vector<LiveRange>{{1, 0, 0}, {1, 0, 0}}), 512u); // rounded up to 256 each
  EXPECT_EQ(largestLiveSum(std::vector<LiveRange>{}), 0u);
}

TEST(PackRanges, ReusesWhatHasEnded) {
  std::vector<LiveRange> items{{512, 0, 1}, {512, 2, 3}};
  Packing packing = packRanges(items);
  EXPECT_EQ(packing.peak, 512u);
  EXPECT_EQ(packing.addresses[0], packing.addresses[1]);
}

TEST(PackRanges, FindsTheOrderThatMeetsTheBound) {
  // b (256) must leave room below or above a and c for d: 1024 live at step 2.
  std::vector<LiveRange> items{{512, 0, 2}, {256, 0, 1}, {512, 2, 4}, {768, 3, 4}};
  Packing packing = packRanges(items);
  EXPECT_FALSE(conflict(items, {}, packing));
  EXPECT_EQ(packing.peak, 1280u); // 512 + 768 at step 3
}

TEST(PackRanges, GoesAroundTakenRanges) {
  // A slot at 256-1024 until step 4: what lives then must not touch it, what comes later may.
  std::vector<LiveRange> items{{512, 0, 3}, {768, 5, 6}};
  std::vector<TakenRange> taken{{256, 768, 0, 4}};
  Packing packing = packRanges(items, taken);
  EXPECT_EQ(packing.addresses[0], 1024u);
  EXPECT_EQ(packing.addresses[1], 0u);
  EXPECT_EQ(packing.peak, 1536u);
}

TEST(PackRanges, AnItemOfNoBytesTakesNoRoom) {
  Packing packing = packRanges(std::vector<LiveRange>{{0, 0, 3}, {256, 0, 3}});
  EXPECT_EQ(packing.peak, 256u);
}

// The transients of one gated decoder layer after another, in units of one row of x (hidden 4, qkv 6, up 28 wide).
TEST(PackRanges, DecoderLayersMeetTheBound) {
  std::vector<LiveRange> items{{4 * 256, 0, 8 * 32}}; // the residual stream
  for (int64_t layer = 0; layer < 32; ++layer) {
    int64_t s = 8 * layer;
    items.push_back({4 * 256, s + 1, s + 2});  // norm -> qkv
    items.push_back({6 * 256, s + 2, s + 3});  // qkv -> attention
    items.push_back({4 * 256, s + 3, s + 4});  // attention -> out
    items.push_back({9 * 256, s + 3, s + 3});  // attention's workspace
    items.push_back({4 * 256, s + 5, s + 6});  // norm -> up
    items.push_back({28 * 256, s + 6, s + 7}); // up -> activate
    items.push_back({14 * 256, s + 7, s + 8}); // activate -> down
  }
  Packing packing = packRanges(items);
  EXPECT_FALSE(conflict(items, {}, packing));
  EXPECT_EQ(packing.peak, (4u + 28 + 14) * 256); // at the activation
}

RC_GTEST_PROP(PackRanges, NoTwoLiveAtOnceOverlap, ()) {
  const auto genItem = rc::gen::apply(
      [](uint64_t bytes, int64_t first, int64_t length) {
        return LiveRange{bytes, first, first + length};
      },
      rc::gen::inRange<uint64_t>(0, 5000), rc::gen::inRange<int64_t>(0, 40), rc::gen::inRange<int64_t>(0, 12));
  const auto genTaken = rc::gen::apply(
      [](uint64_t address, uint64_t bytes, int64_t first, int64_t length) {
        return TakenRange{address * 256, bytes * 256, first, first + length};
      },
      rc::gen::inRange<uint64_t>(0, 20), rc::gen::inRange<uint64_t>(0, 8), rc::gen::inRange<int64_t>(0, 40),
      rc::gen::inRange<int64_t>(0, 20));
  const auto items = *rc::gen::container<std::vector<LiveRange>>(genItem);
  const auto taken = *rc::gen::resize(3, rc::gen::container<std::vector<TakenRange>>(genTaken));
  Packing packing = packRanges(items, taken);
  RC_ASSERT(!conflict(items, taken, packing));
  uint64_t end = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    RC_ASSERT(packing.addresses[i] % 256 == 0);
    end = std::max(end, packing.addresses[i] + (items[i].bytes + 255) / 256 * 256);
  }
  RC_ASSERT(packing.peak == end);
  RC_ASSERT(packing.peak >= largestLiveSum(items));
}

RC_GTEST_PROP(PackRanges, IsWithinHalfOfTheBoundForShortLives, ()) {
  const auto genItem = rc::gen::apply(
      [](uint64_t bytes, int64_t first, int64_t length) {
        return LiveRange{bytes * 256, first, first + length};
      },
      rc::gen::inRange<uint64_t>(1, 64), rc::gen::inRange<int64_t>(0, 60), rc::gen::inRange<int64_t>(0, 3));
  const auto items = *rc::gen::container<std::vector<LiveRange>>(*rc::gen::inRange(1, 80), genItem);
  RC_ASSERT(packRanges(items).peak * 2 <= largestLiveSum(items) * 3);
}

} // namespace
} // namespace headrace::algorithms
