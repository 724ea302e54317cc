// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/Utf8.h"

#include <gtest/gtest.h>

namespace headrace::model {
namespace {

constexpr const char *kBad = "\xef\xbf\xbd";

TEST(Utf8, EveryCodePointButSurrogatesIsACharacter) {
  for (uint32_t point = 0; point <= 0x10ffff; ++point) {
    std::string text;
    if (point < 0x80) {
      text = {static_cast<char>(point)};
    } else {
      const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
      text.push_back(static_cast<char>((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | point >> (6 * more)));
      for (int i = more - 1; i >= 0; --i)
        text.push_back(static_cast<char>(0x80 | ((point >> (6 * i)) & 0x3f)));
    }
    const bool surrogate = point >= 0xd800 && point <= 0xdfff;
    ASSERT_EQ(utf8Length(text), surrogate ? 0 : text.size()) << point;
    ASSERT_EQ(utf8Length(text + "x"), surrogate ? 0 : text.size()) << point;
    ASSERT_EQ(utf8Length(std::string_view(text).substr(0, text.size() - 1)), 0u) << point;
  }
}

TEST(Utf8, SaysWhereTheFirstBadByteIs) {
  EXPECT_EQ(invalidUtf8(""), std::string_view::npos);
  EXPECT_EQ(invalidUtf8("a\xc3\xa9"), std::string_view::npos);
  EXPECT_EQ(invalidUtf8("a\xc3"), 1u);
  EXPECT_EQ(invalidUtf8("a\xc3\xa9\x80"), 3u);
  EXPECT_EQ(invalidUtf8("\xc0\x80"), 0u);         // overlong
  EXPECT_EQ(invalidUtf8("\xf4\x90\x80\x80"), 0u); // above U+10FFFF
}

// The Unicode Standard's own example (15.0, table 3-8 and the text before it).
TEST(Utf8, ReplacesTheLongestBeginningOfACharacterByOne) {
  const std::string r = kBad;
  EXPECT_EQ(lossyUtf8("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(lossyUtf8("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(lossyUtf8("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(lossyUtf8("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41"), r + r + r + r + "A");
}

} // namespace
} // namespace headrace::model
