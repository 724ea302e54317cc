// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/ActRatio.h"

#include <gtest/gtest.h>

namespace headrace::model {
namespace {

TEST(ActRatio, IsReadFromADecimalOrAFraction) {
  const auto read = [](std::string_view text) { return actRatioFromText(text).value_or(ActRatio{-1, -1}); };
  EXPECT_EQ(read("0"), (ActRatio{0, 1}));
  EXPECT_EQ(read("1"), (ActRatio{1, 1}));
  EXPECT_EQ(read("1.0"), (ActRatio{1, 1}));
  EXPECT_EQ(read("0.25"), (ActRatio{1, 4}));
  EXPECT_EQ(read("0.333333"), (ActRatio{333333, 1000000}));
  EXPECT_EQ(read("1/3"), (ActRatio{1, 3}));
  EXPECT_EQ(read("2/6"), (ActRatio{1, 3}));
  EXPECT_EQ(read("7/7"), (ActRatio{1, 1}));
  EXPECT_TRUE(read("auto").isAuto());
  EXPECT_FALSE(read("auto").any());
  EXPECT_EQ(actRatioText(read("auto")), "auto");
  for (const char *text : {"", "1.1", "2", "-0.5", ".5", "0.", "4/3", "1/0", "1/", "/2", "1/2/3", "0.1234567", "half",
                           "1e-1", "nan", " 1", "0x1", "99999999/99999999", "1/1000001"})
    EXPECT_FALSE(actRatioFromText(text)) << text;
  EXPECT_EQ(actRatioText({1, 3}), "1/3");
  EXPECT_EQ(actRatioText({0, 1}), "0");
  EXPECT_EQ(actRatioText({1, 1}), "1");
}

TEST(ActRatio, OfNumbersOfBlocks) {
  EXPECT_EQ(actRatioOf(3, 1), (ActRatio{3, 4}));
  EXPECT_EQ(actRatioOf(666, 262), (ActRatio{333, 464}));
  EXPECT_EQ(actRatioOf(0, 5), ActRatio());
  EXPECT_EQ(actRatioOf(0, 0), ActRatio());
  EXPECT_EQ(actRatioOf(3 * (int64_t{1} << 40), int64_t{1} << 40), (ActRatio{3, 4}));
}

// Eq. 11 with its rule written out: the next block keeps activations where a / (a + k + 1) is below the share.
TEST(ActRatio, FollowsTheRuleBlockByBlock) {
  for (int64_t den = 1; den <= 12; ++den)
    for (int64_t num = 0; num <= den; ++num) {
      const ActRatio share{num, den};
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
  EXPECT_TRUE((ActRatio{3, 4}).nextIsAct(5, 2));
  EXPECT_FALSE((ActRatio{3, 4}).nextIsAct(6, 1)); // 6 / 8 is the share: a tie goes to keys and values
}

// Two sequences of at most 4 blocks, 8 in all, one of three: each may have 2 and 2; of 5 in all rounding costs one.
TEST(ActRatio, BlocksOfKinds) {
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
