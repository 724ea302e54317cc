// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/Nearest.h"

#include <gtest/gtest.h>

namespace headrace::model {
namespace {

const std::vector<std::string> kNames = {"a10", "h100", "h200", "llama-3.1-8b", "opt-6.7b", "rtx4090", "select-n"};

TEST(DidYouMean, NamesTheOnesOfTheFewestChanges) {
  EXPECT_EQ(didYouMean("selectn", kNames), "; did you mean select-n?");  // left out
  EXPECT_EQ(didYouMean("rtx40900", kNames), "; did you mean rtx4090?");  // inserted
  EXPECT_EQ(didYouMean("opt-67.b", kNames), "; did you mean opt-6.7b?"); // swapped
  EXPECT_EQ(didYouMean("RTX-4090", kNames), "; did you mean rtx4090?");  // case does not count
  EXPECT_EQ(didYouMean("llama3-8b", kNames), "; did you mean llama-3.1-8b?");
  EXPECT_EQ(didYouMean("h300", kNames), "; did you mean h100 or h200?");
}

TEST(DidYouMean, ElseThoseThatContainIt) {
  EXPECT_EQ(didYouMean("4090", kNames), "; did you mean rtx4090?");
  EXPECT_EQ(didYouMean("llama", kNames), "; did you mean llama-3.1-8b?");
}

TEST(DidYouMean, NothingWhereNoneIsLikeIt) {
  for (const char *word : {"", "x", "tpu", "gpt2"})
    EXPECT_EQ(didYouMean(word, kNames), "") << word;
  EXPECT_EQ(didYouMean(std::string(100000, 'a'), kNames), "");
}

} // namespace
} // namespace headrace::model
