// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Utf8.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "runtime/text/tokenizer/ByteAlphabet.h"

namespace headrace::text {
namespace {

std::string lossy(std::string_view bytes) {
  std::string text;
  EXPECT_EQ(appendLossy(bytes, true, text), bytes.size());
  return text;
}

TEST(Utf8, PrefixEndsAtTheFirstByteThatIsNone) {
  EXPECT_EQ(utf8Prefix("abc"), 3u);
  EXPECT_EQ(utf8Prefix("12345678\xC3\xA9"), 10u);
  EXPECT_EQ(utf8Prefix("12345678\xC3"), 8u);      // cut off
  EXPECT_EQ(utf8Prefix("a\xC0\x80"), 1u);         // overlong
  EXPECT_EQ(utf8Prefix("a\xED\xA0\x80"), 1u);     // a surrogate
  EXPECT_EQ(utf8Prefix("a\xF4\x90\x80\x80"), 1u); // above U+10FFFF
  EXPECT_EQ(utf8Prefix("\xF0\x9F\x98\x80\xFF"), 4u);
}

TEST(Utf8, LossyHasOneReplacementForEachLongestPartOfACharacter) {
  EXPECT_EQ(lossy("a\xE4\xB8z"), "a\uFFFDz");               // two bytes of three
  EXPECT_EQ(lossy("\xE4\xB8\xE4\xB8\xAD"), "\uFFFD\u4E2D"); // and then a whole one
  EXPECT_EQ(lossy("\x80\x80"), "\uFFFD\uFFFD");
  EXPECT_EQ(lossy("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD"); // ED is followed by 80 to 9F
  EXPECT_EQ(lossy("\xF0\x9F\x98"), "\uFFFD");
}

RC_GTEST_PROP(Utf8, LossyIsTheSameInPieces, ()) {
  const std::string bytes = *rc::gen::container<std::string>(
      rc::gen::element('a', '\x80', '\xA9', '\xBF', '\xC3', '\xE4', '\xED', '\xF0', '\xF4', '\xFF', '\x90'));
  std::string text, open;
  for (const char byte : bytes) {
    open += byte;
    open.erase(0, appendLossy(open, false, text));
    RC_ASSERT(open.size() < 4u);
  }
  appendLossy(open, true, text);
  RC_ASSERT(text == lossy(bytes));
}

TEST(ByteAlphabet, EveryByteHasALetterOfItsOwn) {
  std::string bytes, letters, back;
  for (int byte = 0; byte < 256; ++byte)
    bytes += static_cast<char>(byte);
  appendLetters(bytes, letters);
  EXPECT_TRUE(appendBytesOfLetters(letters, back));
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(byteLetter(' '), 0x120u);
  EXPECT_EQ(byteLetter('\n'), 0x10Au);
  EXPECT_EQ(byteLetter('a'), uint32_t{'a'});
  EXPECT_FALSE(appendBytesOfLetters("a b", back)); // a space stands for no byte
  EXPECT_EQ(back, bytes);
}

} // namespace
} // namespace headrace::text
