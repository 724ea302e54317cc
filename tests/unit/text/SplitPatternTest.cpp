// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/SplitPattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "runtime/text/tokenizer/TranslatePattern.h"
#include "runtime/text/tokenizer/Unicode.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

using testing::ElementsAre;

std::vector<std::string> partsOf(const SplitPattern &pattern, const std::string &text) {
  std::vector<std::string> parts;
  MatchMemory memory;
  const absl::Status status = pattern.forEachPart(text, memory, [&](const TextPart &part) {
    parts.push_back((part.match ? "+" : "-") + text.substr(part.begin, part.end - part.begin));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return parts;
}

std::vector<std::string> regexParts(const std::string &pattern, const std::string &text) {
  const absl::StatusOr<SplitPattern> made = SplitPattern::regexWithoutShortcut(pattern);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? partsOf(*made, text) : std::vector<std::string>();
}

TEST(SplitPattern, GivesMatchesAndWhatIsBetween) {
  EXPECT_THAT(partsOf(SplitPattern::string("ab"), "xababy"), ElementsAre("-x", "+ab", "+ab", "-y"));
  EXPECT_THAT(regexParts("b+", "abba"), ElementsAre("-a", "+bb", "-a"));
  EXPECT_THAT(regexParts("b+", ""), ElementsAre());
}

TEST(SplitPattern, AnEmptyMatchBehindAMatchDoesNotCount) {
  // At 0 "aa"; at 2 the empty match is the end of the last one; at 3, and at the end, empty matches count.
  EXPECT_THAT(regexParts("a*", "aab"), ElementsAre("+aa", "-b", "+"));
}

TEST(SplitPattern, ReadsWhatOnigurumaReadsOtherwise) {
  EXPECT_THAT(regexParts(R"(\h+)", "x1fZ"), ElementsAre("-x", "+1f", "-Z"));             // hexadecimal digits
  EXPECT_THAT(regexParts("a{,2}", "aaa"), ElementsAre("+aa", "+a"));                     // no letters to two
  EXPECT_THAT(regexParts("^b", "a\nb"), ElementsAre("-a\n", "+b"));                      // each line
  EXPECT_THAT(regexParts(R"(\s)", "a\u180E\u0085"), ElementsAre("-a\u180E", "+\u0085")); // U+180E is no space
  EXPECT_THAT(regexParts(R"([^\S\n]+)", " \n\t"), ElementsAre("+ ", "-\n", "+\t"));
  EXPECT_THAT(regexParts(R"([\S\n]+)", "a \n"), ElementsAre("+a", "- ", "+\n"));
  EXPECT_THAT(regexParts(R"(\v|#| )", "a\v# "), ElementsAre("-a", "+\v", "+#", "+ "));
  EXPECT_THAT(regexParts(R"(\p{L}+)", "\U000105C0\U0002EBF0"), // of Unicode 16 and 15.1
              ElementsAre("+\U000105C0\U0002EBF0"));
}

TEST(SplitPattern, RefusesWhatHasNoSuchPattern) {
  const auto refusal = [](const std::string &pattern) {
    const absl::StatusOr<SplitPattern> made = SplitPattern::regex(pattern);
    return made.ok() ? "" : std::string(made.status().message());
  };
  EXPECT_EQ(refusal(R"(a\b)"), R"(at byte 3 of the pattern: \b is not supported)");
  EXPECT_EQ(refusal(R"((a)\1)"), R"(at byte 5 of the pattern: \1 is not supported)");
  EXPECT_EQ(refusal("[a&&b]"), "at byte 2 of the pattern: a class in a class is not supported");
  EXPECT_EQ(refusal("[[:alpha:]]"), "at byte 1 of the pattern: a class in a class is not supported");
  EXPECT_EQ(refusal("(?<n>a)"), "at byte 0 of the pattern: (?< is not supported");
  EXPECT_EQ(refusal("a{2}+"), "at byte 1 of the pattern: {2}+ is not supported");
  EXPECT_EQ(refusal("(?i:ss)"), "at byte 6 of the pattern: \"ss\" under (?i is not supported");
  EXPECT_EQ(refusal(R"((?i:\p{Lu}))"), R"(at byte 7 of the pattern: \p{Lu} under (?i is not supported)");
  EXPECT_EQ(refusal(R"(\p{Klingon})"), R"(at byte 3 of the pattern: \p{Klingon} is not supported)");
  EXPECT_EQ(refusal("(a"), "not a regular expression that can be used: missing closing parenthesis");
  EXPECT_EQ(refusal("[a"), "at byte 2 of the pattern: a class without its end is not supported");
}

TEST(SplitPattern, GivesUpAfterItsSteps) {
  const absl::StatusOr<SplitPattern> pattern = SplitPattern::regex("(x+x+)+[yz]");
  ASSERT_TRUE(pattern.ok());
  MatchMemory memory;
  const absl::Status status =
      pattern->forEachPart(std::string(200, 'x'), memory, [](const TextPart &) { return absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(status.message()),
            "the pattern (x+x+)+[yz] cannot be matched with this text: match limit exceeded");
}

// Characters of every kind that the patterns tell apart, those beside which they differ, and any.
rc::Gen<std::string> anyText() {
  const auto piece =
      rc::gen::oneOf(rc::gen::elementOf(std::vector<std::string>{
                         "'", "'s", "'S", "'re", "'LL", "'ve",    "'ſ",         "a",      "Zé",     "ß",      "1",
                         "²", "٣",  " ",  "  ",  "\n",  "\r",     "\r\n",       "\t",     "\u00A0", "\u3000", "\u2028",
                         "!", ".",  "_",  "/",   "中",  "\u0301", "\U0001F600", "\u180E", "\u200B"}),
                     rc::gen::map(rc::gen::inRange<uint32_t>(1, 0x110000), [](uint32_t codePoint) {
                       std::string text;
                       appendUtf8(codePoint >= 0xD800 && codePoint < 0xE000 ? 'x' : codePoint, text);
                       return text;
                     }));
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(piece), [](const std::vector<std::string> &pieces) {
    std::string text;
    for (const std::string &each : pieces)
      text += each;
    return text;
  });
}

RC_GTEST_PROP(SplitPattern, KnownPatternsMatchAsRegularExpressions, ()) {
  const std::string source(*rc::gen::element(kGpt2Pattern, kLlama3Pattern, kQwen2Pattern));
  const std::string text = *anyText();
  RC_ASSERT(partsOf(*SplitPattern::regex(source), text) == regexParts(source, text));
}

TEST(SplitPattern, KnownPatternsKnowEveryCharacter) {
  std::string text;
  for (uint32_t codePoint = 1; codePoint < 0x110000; ++codePoint)
    if (codePoint < 0xD800 || codePoint >= 0xE000) {
      text += 'x';
      appendUtf8(codePoint, text);
    }
  for (const std::string_view source : {kGpt2Pattern, kLlama3Pattern})
    EXPECT_EQ(partsOf(*SplitPattern::regex(source), text), regexParts(std::string(source), text));
}

} // namespace
} // namespace headrace::text
