// SPDX-License-Identifier: Apache-2.0
#include "runtime/job/Percent.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace::model {
namespace {

using testing::EndsWith;
using testing::StartsWith;

std::string expectedOf(const std::string &text) {
  std::string expected;
  EXPECT_FALSE(percentFromText(text, expected)) << text;
  return expected;
}

TEST(Percent, IsSixNumbers) {
  const Percent wanted = {55, 45, 0, 100, 100, 0};
  std::string expected;
  for (const std::string text : {"55 45 0 100 100 0", "55,45,0,100,100,0", "  55, 45, 0.0, 1e2, 100, 0 "})
    EXPECT_EQ(percentFromText(text, expected), wanted) << text << ": " << expected;
  EXPECT_EQ(percentText(wanted), "55 45 0 100 100 0");
  EXPECT_TRUE(percentFromText("33.3 66.7 0 100 0 100", expected)); // 33.3 + 66.7 is not 100 to the last bit
}

TEST(Percent, RefusesWhatItIsNot) {
  EXPECT_THAT(expectedOf("55 45 0 100 100"), StartsWith("six numbers, wg wc cg cc hg hc, such as"));
  EXPECT_THAT(expectedOf("55 45 0 100 100"), EndsWith(", not 5"));
  EXPECT_THAT(expectedOf(""), EndsWith(", not 0"));
  EXPECT_THAT(expectedOf("55 45 0 100 100 0 0"), EndsWith(", not 7"));
  EXPECT_THAT(expectedOf("55 45 0 100 100 x"), EndsWith(", not \"x\""));
  EXPECT_THAT(expectedOf("55 45% 0 100 100 0"), EndsWith(", not \"45%\""));
  EXPECT_THAT(expectedOf("nan 45 0 100 100 0"), EndsWith(", not \"nan\""));
  EXPECT_EQ(expectedOf("55 35 0 100 100 0"), "wg + wc = 100, not 90: nothing is kept on disk");
  EXPECT_EQ(expectedOf("55 45 10 100 100 0"), "cg + cc = 100, not 110: nothing is kept on disk");
  EXPECT_EQ(expectedOf("-5 105 0 100 100 0"), "wg from 0 to 100, not -5");
  EXPECT_EQ(expectedOf("105 -5 0 100 100 0"), "wc from 0 to 100, not -5");
  EXPECT_EQ(expectedOf("55 45 0 100 30 70"), "hg = 0 or 100, not 30: hidden states are one buffer");
  EXPECT_EQ(checkPercent({50, 40, 0, 100, 0, 100}, "percent").message(),
            "percent: expected wg + wc = 100, not 90: nothing is kept on disk");
}

} // namespace
} // namespace headrace::model
