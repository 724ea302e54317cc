// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/PickLayers.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace headrace::algorithms {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(IntervalLayers, TakesTheLastOfEveryGroupAndLeavesTheRemainder) {
  EXPECT_THAT(intervalLayers(8, 3), ElementsAre(2, 5)); // floor(8 / 3) = 2
  EXPECT_THAT(intervalLayers(4, 1), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(intervalLayers(4, 4), ElementsAre(3));
  EXPECT_THAT(intervalLayers(4, 5), IsEmpty());
}

TEST(SpreadLayers, TakesTheLastOfGroupsOfEvenLength) {
  EXPECT_THAT(spreadLayers(8, 3), ElementsAre(1, 4, 7)); // groups of 2, 3, 3
  EXPECT_THAT(spreadLayers(5, 0), IsEmpty());
  EXPECT_THAT(spreadLayers(5, 5), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(spreadLayers(7, 1), ElementsAre(6));
}

TEST(SpreadLayers, IsTheIntervalWhereTheCountDivides) {
  for (int64_t layers = 1; layers <= 48; ++layers)
    for (int64_t interval = 1; interval <= layers; ++interval)
      if (layers % interval == 0) {
        EXPECT_EQ(spreadLayers(layers, layers / interval), intervalLayers(layers, interval))
            << layers << " " << interval;
      }
}

TEST(SpreadLayers, GroupsDifferByAtMostOneForEveryCount) {
  for (int64_t layers = 1; layers <= 130; ++layers)
    for (int64_t count = 1; count <= layers; ++count) {
      std::vector<int64_t> picked = spreadLayers(layers, count);
      ASSERT_EQ(picked.size(), static_cast<size_t>(count));
      int64_t shortest = layers, longest = 0, previous = -1;
      for (int64_t layer : picked) {
        shortest = std::min(shortest, layer - previous);
        longest = std::max(longest, layer - previous);
        previous = layer;
      }
      ASSERT_GE(shortest, 1);
      ASSERT_LE(longest - shortest, 1) << layers << " " << count;
      ASSERT_EQ(picked.back(), layers - 1);
    }
}

// Of 8 layers 3: 3/8, 6/8, 9/8 reaches 1 at layer 2; 2 at layer 5; 3 at layer 7.
TEST(EvenLayers, AreReachedAsLayersGoBy) {
  EXPECT_EQ(evenLayers(8, 3), (std::vector<int32_t>{2, 5, 7}));
  EXPECT_EQ(evenLayers(8, 0), (std::vector<int32_t>{}));
  EXPECT_EQ(evenLayers(3, 3), (std::vector<int32_t>{0, 1, 2}));
  for (int64_t layers = 1; layers < 30; ++layers)
    for (int64_t count = 0; count <= layers; ++count)
      EXPECT_EQ(evenLayers(layers, count).size(), static_cast<size_t>(count)) << layers;
}

} // namespace
} // namespace headrace::algorithms
