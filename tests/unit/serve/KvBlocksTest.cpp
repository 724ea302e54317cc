// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/KvBlocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

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

// Blocks 1 to 4 of keys and values, 5 to 8 of activations; 1 of 2 in each table, so 3 of a table's first 5.
TEST(KvBlocks, KindsFollowTheShareOfEachTable) {
  KvBlocks blocks(5, 4, {.blocks = 4, .context = 7, .share = {1, 2}});
  EXPECT_EQ(blocks.freeBlocks(), 7);
  std::vector<int32_t> one, other;
  ASSERT_TRUE(blocks.grow(one, 9).ok()); // three
  EXPECT_EQ(one, (std::vector<int32_t>{5, 1, 6}));
  EXPECT_EQ(blocks.endOfUse(), 2); // of KV blocks
  ASSERT_TRUE(blocks.grow(other, 5).ok());
  EXPECT_EQ(other, (std::vector<int32_t>{7, 2}));
  ASSERT_TRUE(blocks.grow(one, 16).ok());
  EXPECT_EQ(one, (std::vector<int32_t>{5, 1, 6, 3}));
  EXPECT_EQ(blocks.used(), 6);
  EXPECT_EQ(blocks.freeBlocks(), 1);
  // Two more are over the seven; nothing is taken.
  EXPECT_EQ(blocks.grow(other, 16).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(other.size(), 2u);
  blocks.shrink(one, 5);
  EXPECT_EQ(one, (std::vector<int32_t>{5, 1}));
  ASSERT_TRUE(blocks.grow(other, 9).ok());
  EXPECT_EQ(other, (std::vector<int32_t>{7, 2, 6})); // the lowest that is free
  blocks.release(one);
  blocks.release(other);
  EXPECT_EQ(blocks.freeBlocks(), 7);
  EXPECT_EQ(blocks.endOfUse(), 1);
}

// Each kind is exchanged for the lowest of its own: of 5 to 8, 1 to 4 are free and stay so.
TEST(KvBlocks, AnActivationBlockIsExchangedForALowerOneOfItsKind) {
  KvBlocks blocks(5, 4, {.blocks = 4, .context = 8, .share = {1, 1}});
  std::vector<int32_t> one, other;
  ASSERT_TRUE(blocks.grow(one, 8).ok());   // 5, 6
  ASSERT_TRUE(blocks.grow(other, 8).ok()); // 7, 8
  blocks.release(one);
  EXPECT_EQ(blocks.actEndOfUse(), 4);
  EXPECT_TRUE(blocks.lower(other[1]));
  EXPECT_EQ(other, (std::vector<int32_t>{7, 5}));
  EXPECT_EQ(blocks.actEndOfUse(), 3);
  EXPECT_TRUE(blocks.lower(other[0]));
  EXPECT_EQ(other, (std::vector<int32_t>{6, 5}));
  EXPECT_FALSE(blocks.lower(other[0]));
  EXPECT_EQ(blocks.actUsed(), 2);
  EXPECT_EQ(blocks.kvUsed(), 0);
  EXPECT_EQ(blocks.endOfUse(), 1);
  blocks.release(other);
}

TEST(KvBlocks, ActivationBlocksAreNotLimited) {
  KvBlocks blocks(5, 4, {.blocks = 4, .context = 8, .share = {1, 1}});
  std::vector<int32_t> table;
  ASSERT_TRUE(blocks.grow(table, 8).ok());
  EXPECT_EQ(table, (std::vector<int32_t>{5, 6}));
  EXPECT_FALSE(blocks.lower(table[1]));
  EXPECT_EQ(blocks.blocksInUseAbove(1), 0); // of KV blocks
  EXPECT_TRUE(blocks.setLimit(5).ok());
  EXPECT_EQ(blocks.setLimit(4).message(),
            "KV cache: a limit of 4 blocks, expected all 5: their number is that of activation blocks");
  blocks.release(table);
}

// Whatever sequences come and go, at most so many of them, of at most so many blocks each and all together: there is a
// block of the kind that the next one must be.
TEST(KvBlocks, BlocksOfKindsSuffice) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint32_t>(n)); };
  for (int trial = 0; trial < 2000; ++trial) {
    const int64_t den = 1 + below(6), num = 1 + below(den), sequences = 1 + below(5), longest = 1 + below(9);
    const model::ActRatio share{num, den};
    const int64_t context = longest + below(sequences * longest - longest + 1);
    const model::BlocksOfKinds of = model::blocksOfKinds(share, context, sequences, longest);
    KvBlocks blocks(1 + of.kv, 1, {.blocks = of.act, .context = context, .share = share});
    std::vector<std::vector<int32_t>> tables(static_cast<size_t>(sequences));
    for (int step = 0; step < 60; ++step) {
      std::vector<int32_t> &table = tables[static_cast<size_t>(below(sequences))];
      if (below(3) == 0) {
        blocks.release(table);
        continue;
      }
      const int64_t wanted = below(longest + 1), more = wanted - static_cast<int64_t>(table.size());
      const bool fits = more <= blocks.freeBlocks();
      ASSERT_EQ(blocks.grow(table, wanted).ok(), fits || more <= 0) << num << "/" << den << " context " << context;
    }
  }
}

} // namespace
} // namespace headrace::core
