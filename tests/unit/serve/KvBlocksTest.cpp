// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/KvBlocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::core {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(KvBlocks, GivesTheLowestFreeBlockFirstAndNeverTheScratchBlock) {
  KvBlocks blocks(6, 4); // 1..5
  std::vector<int32_t> a, b;
  ASSERT_TRUE(blocks.grow(a, 5).ok()); // 5 tokens: 2 blocks of 4
  ASSERT_TRUE(blocks.grow(b, 4).ok());
  EXPECT_THAT(a, ElementsAre(1, 2));
  EXPECT_THAT(b, ElementsAre(3));
  blocks.release(a);
  EXPECT_TRUE(a.empty());
  ASSERT_TRUE(blocks.grow(b, 12).ok());
  EXPECT_THAT(b, ElementsAre(3, 1, 2));
  EXPECT_EQ(blocks.freeBlocks(), 2);
}

TEST(KvBlocks, GrowingWithinABlockTakesNone) {
  KvBlocks blocks(3, 4);
  std::vector<int32_t> table;
  for (int64_t tokens : {1, 2, 3, 4})
    ASSERT_TRUE(blocks.grow(table, tokens).ok());
  EXPECT_THAT(table, ElementsAre(1));
}

TEST(KvBlocks, ShrinkingTakesBackWhatIsBehindSoManyTokens) {
  KvBlocks blocks(6, 4);
  std::vector<int32_t> table;
  ASSERT_TRUE(blocks.grow(table, 20).ok());
  blocks.shrink(table, 20);
  EXPECT_THAT(table, ElementsAre(1, 2, 3, 4, 5));
  blocks.shrink(table, 9); // three blocks of 4 hold 12
  EXPECT_THAT(table, ElementsAre(1, 2, 3));
  EXPECT_EQ(blocks.freeBlocks(), 2);
  EXPECT_EQ(blocks.endOfUse(), 4);
  blocks.shrink(table, 0);
  EXPECT_TRUE(table.empty());
  EXPECT_EQ(blocks.freeBlocks(), 5);
  EXPECT_EQ(blocks.endOfUse(), 1);
}

TEST(KvBlocks, TakesNothingWhenTooFewAreFree) {
  KvBlocks blocks(4, 4);
  std::vector<int32_t> a, b;
  ASSERT_TRUE(blocks.grow(a, 8).ok());
  const absl::Status status = blocks.grow(b, 8);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 more blocks wanted, 1 are free"));
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(blocks.freeBlocks(), 1);
}

TEST(KvBlocks, NoneAreLostOverManyRequests) {
  KvBlocks blocks(33, 2);
  std::vector<std::vector<int32_t>> tables(8);
  uint64_t random = 1;
  for (int i = 0; i < 5000; ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    std::vector<int32_t> &table = tables[(random >> 33) % tables.size()];
    if ((random >> 40) % 3 == 0)
      blocks.release(table);
    else
      (void)blocks.grow(table, static_cast<int64_t>((random >> 45) % 20));
    size_t used = 0;
    std::vector<bool> taken(33);
    for (const auto &t : tables)
      for (int32_t block : t) {
        ASSERT_GT(block, 0);
        ASSERT_LT(block, 33);
        ASSERT_FALSE(taken[static_cast<size_t>(block)]);
        taken[static_cast<size_t>(block)] = true;
        ++used;
      }
    ASSERT_EQ(static_cast<size_t>(blocks.freeBlocks()) + used, 32u);
  }
}

// 8 blocks, 1 to 7. With a limit of 4 there are 1, 2 and 3.
TEST(KvBlocks, TheLimitMovesButNeverBelowABlockInUse) {
  KvBlocks blocks(8, 4);
  EXPECT_EQ(blocks.limit(), 8);
  ASSERT_TRUE(blocks.setLimit(4).ok());
  EXPECT_EQ(blocks.freeBlocks(), 3);
  std::vector<int32_t> a, b;
  EXPECT_EQ(blocks.grow(a, 16).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(blocks.grow(a, 8).ok());
  EXPECT_EQ(blocks.freeBlocks(), 1);
  ASSERT_TRUE(blocks.setLimit(8).ok());
  EXPECT_EQ(blocks.freeBlocks(), 5);
  ASSERT_TRUE(blocks.grow(b, 12).ok());
  EXPECT_THAT(b, ElementsAre(3, 4, 5));
  EXPECT_EQ(blocks.blocksInUseAbove(4), 2); // 4 and 5
  EXPECT_EQ(blocks.blocksInUseAbove(6), 0);
  EXPECT_EQ(blocks.blocksInUseAbove(8), 0);
  const absl::Status status = blocks.setLimit(4);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 blocks from 4 on are in use"));
  EXPECT_EQ(blocks.limit(), 8);
  ASSERT_TRUE(blocks.setLimit(6).ok()); // just behind the last in use
  EXPECT_EQ(blocks.freeBlocks(), 0);
  blocks.release(b);
  EXPECT_EQ(blocks.freeBlocks(), 3);
  ASSERT_TRUE(blocks.setLimit(3).ok());
  EXPECT_EQ(blocks.freeBlocks(), 0);
  EXPECT_FALSE(blocks.setLimit(0).ok());
  EXPECT_FALSE(blocks.setLimit(9).ok());
}

// 8 blocks, 1 to 7: of those in use, however high they are, no more than are offered.
TEST(KvBlocks, NoMoreAreInUseThanAreOffered) {
  KvBlocks blocks(8, 4);
  std::vector<int32_t> a, b;
  blocks.setOffered(3);
  EXPECT_EQ(blocks.freeBlocks(), 3);
  EXPECT_EQ(blocks.grow(a, 16).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(blocks.grow(a, 8).ok());
  ASSERT_TRUE(blocks.grow(b, 4).ok());
  EXPECT_EQ(blocks.used(), 3);
  EXPECT_EQ(blocks.freeBlocks(), 0);
  blocks.setOffered(5); // there at once
  ASSERT_TRUE(blocks.grow(b, 12).ok());
  EXPECT_EQ(blocks.freeBlocks(), 0);
  blocks.setOffered(2); // those in use stay, and none is given out before three have come back
  EXPECT_EQ(blocks.used(), 5);
  EXPECT_EQ(blocks.freeBlocks(), -3);
  ASSERT_TRUE(blocks.grow(b, 12).ok()); // it has them
  EXPECT_THAT(std::string(blocks.grow(b, 16).message()), HasSubstr("1 more blocks wanted, 0 are free"));
  blocks.release(b);
  EXPECT_EQ(blocks.freeBlocks(), 0);
  blocks.release(a);
  EXPECT_EQ(blocks.freeBlocks(), 2);
  ASSERT_TRUE(blocks.setLimit(2).ok()); // the placement has one
  EXPECT_EQ(blocks.freeBlocks(), 1);
}

TEST(KvBlocks, ABlockIsExchangedForALowerFreeOne) {
  KvBlocks blocks(8, 4);
  std::vector<int32_t> a, b;
  ASSERT_TRUE(blocks.grow(a, 12).ok()); // 1, 2, 3
  ASSERT_TRUE(blocks.grow(b, 8).ok());  // 4, 5
  EXPECT_FALSE(blocks.lower(b[0]));     // those that are free are higher
  blocks.release(a);
  EXPECT_TRUE(blocks.lower(b[1]));
  EXPECT_THAT(b, ElementsAre(4, 1));
  EXPECT_EQ(blocks.endOfUse(), 5);
  EXPECT_TRUE(blocks.lower(b[0]));
  EXPECT_THAT(b, ElementsAre(2, 1));
  EXPECT_FALSE(blocks.lower(b[0]));
  EXPECT_EQ(blocks.endOfUse(), 3);
  EXPECT_EQ(blocks.used(), 2);
  EXPECT_EQ(blocks.freeBlocks(), 5);
  ASSERT_TRUE(blocks.grow(a, 20).ok());
  EXPECT_THAT(a, ElementsAre(3, 4, 5, 6, 7)); // nothing was lost
}

// 8 blocks, 1 to 7.
TEST(KvBlocks, TheEndOfUseIsBehindTheHighestThatIsGivenOut) {
  KvBlocks blocks(8, 4);
  EXPECT_EQ(blocks.endOfUse(), 1); // the scratch block
  std::vector<int32_t> a, b, c;
  ASSERT_TRUE(blocks.grow(a, 8).ok()); // 1 and 2
  EXPECT_EQ(blocks.endOfUse(), 3);
  ASSERT_TRUE(blocks.grow(a, 8).ok()); // no more
  EXPECT_EQ(blocks.endOfUse(), 3);
  ASSERT_TRUE(blocks.grow(b, 12).ok()); // 3, 4 and 5
  EXPECT_EQ(blocks.endOfUse(), 6);
  blocks.release(a); // 5 is still the highest
  EXPECT_EQ(blocks.endOfUse(), 6);
  ASSERT_TRUE(blocks.grow(c, 4).ok()); // 1, the lowest that is free
  EXPECT_EQ(blocks.endOfUse(), 6);
  blocks.release(b);
  EXPECT_EQ(blocks.endOfUse(), 2); // behind c's, over the free ones between
  blocks.release(c);
  EXPECT_EQ(blocks.endOfUse(), 1);
  EXPECT_EQ(blocks.grow(a, 32).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(blocks.endOfUse(), 1); // nothing was taken
  ASSERT_TRUE(blocks.grow(a, 28).ok());
  EXPECT_EQ(blocks.endOfUse(), 8); // all of them
}

} // namespace
} // namespace headrace::core
