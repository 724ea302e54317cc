// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/ActShare.h"

#include <gtest/gtest.h>

namespace headrace::model {
namespace {

TEST(ActShare, IsReadFromADecimalOrAFraction) {
  const auto read = [](std::string_view text) { return actShareFromText(text).value_or(ActShare{-1, -1}); };
  EXPECT_EQ(read("0"), (ActShare{0, 1}));
  EXPECT_EQ(read("1"), (ActShare{1, 1}));
  EXPECT_EQ(read("1.0"), (ActShare{1, 1}));
  EXPECT_EQ(read("0.25"), (ActShare{1, 4}));
  EXPECT_EQ(read("0.333333"), (ActShare{333333, 1000000}));
  EXPECT_EQ(read("1/3"), (ActShare{1, 3}));
  EXPECT_EQ(read("2/6"), (ActShare{1, 3}));
  EXPECT_EQ(read("7/7"), (ActShare{1, 1}));
  EXPECT_TRUE(read("auto").isAuto());
  EXPECT_FALSE(read("auto").any());
  EXPECT_EQ(actShareText(read("auto")), "auto");
  for (const char *text : {"", "1.1", "2", "-0.5", ".5", "0.", "4/3", "1/0", "1/", "/2", "1/2/3", "0.1234567", "half",
                           "1e-1", "nan", " 1", "0x1", "99999999/99999999", "1/1000001"})
    EXPECT_FALSE(actShareFromText(text)) << text;
  EXPECT_EQ(actShareText({1, 3}), "1/3");
  EXPECT_EQ(actShareText({0, 1}), "0");
  EXPECT_EQ(actShareText({1, 1}), "1");
}

TEST(ActShare, OfNumbersOfBlocks) {
  EXPECT_EQ(actShareOf(3, 1), (ActShare{3, 4}));
  EXPECT_EQ(actShareOf(666, 262), (ActShare{333, 464}));
  EXPECT_EQ(actShareOf(0, 5), ActShare());
  EXPECT_EQ(actShareOf(0, 0), ActShare());
  EXPECT_EQ(actShareOf(3 * (int64_t{1} << 40), int64_t{1} << 40), (ActShare{3, 4}));
}

// Eq. 11 with its rule written out: the next block keeps activations where a / (a + k + 1) is below the share.
TEST(ActShare, FollowsTheRuleBlockByBlock) {
  for (int64_t den = 1; den <= 12; ++den)
    for (int64_t num = 0; num <= den; ++num) {
      const ActShare share{num, den};
      int64_t a = 0;
      for (int64_t blocks = 0; blocks < 60; ++blocks) {
        ASSERT_EQ(share.of(blocks), a);
        const bool next = a * den < num * (blocks + 1);
        ASSERT_EQ(share.nextIsAct(a, blocks - a), next);
        ASSERT_EQ(share.isAct(blocks), next) << num << "/" << den << " block " << blocks;
        a += next;
      }
    }
  // The paper's: 3 of 4, five and two present, the next keeps activations (section 4.3.2).
  EXPECT_TRUE((ActShare{3, 4}).nextIsAct(5, 2));
  EXPECT_FALSE((ActShare{3, 4}).nextIsAct(6, 1)); // 6 / 8 is the share: a tie goes to keys and values
}

// Two sequences of at most 4 blocks, 8 in all, one of three: each may have 2 and 2; of 5 in all rounding costs one.
TEST(ActShare, BlocksOfKinds) {
  EXPECT_EQ(blocksOfKinds({1, 3}, 8, 2, 4).act, 4);
  EXPECT_EQ(blocksOfKinds({1, 3}, 8, 2, 4).kv, 4);
  EXPECT_EQ(blocksOfKinds({1, 3}, 5, 2, 4).act, 3); // (5 + 2 x 2) / 3: 4 and 1 blocks have 2 and 1
  EXPECT_EQ(blocksOfKinds({1, 3}, 5, 2, 4).kv, 3);  // 5 - 2: 4 and 1 have 2 and 0, 3 and 2 have 2 and 1
  EXPECT_EQ(blocksOfKinds({1, 1}, 8, 2, 4).kv, 0);
  EXPECT_EQ(blocksOfKinds({0, 1}, 8, 2, 4).act, 0);
  EXPECT_EQ(actRows({1, 3}, 16, 33), 16); // three blocks, one of them
  EXPECT_EQ(actRows({1, 3}, 16, 49), 32); // four, two
}

} // namespace
} // namespace headrace::model
