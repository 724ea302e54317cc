// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Normalizer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "runtime/text/tokenizer/Utf8.h"
#include "tests/unit/text/TokenizerFixture.h"

namespace headrace::text {
namespace {

std::string normalized(const json &normalizer, const std::string &text, size_t *fromBegin = nullptr) {
  const absl::StatusOr<Normalizer> made = Normalizer::parse(normalizer, "tokenizer.json");
  EXPECT_TRUE(made.ok()) << made.status();
  NormalizerMemory memory;
  MatchMemory matching;
  const absl::StatusOr<Piece> piece =
      made->apply({text, text.empty() ? 0 : codePointAt(text, 0).bytes}, memory, matching);
  EXPECT_TRUE(piece.ok()) << piece.status();
  if (fromBegin != nullptr)
    *fromBegin = piece->fromBegin;
  return std::string(piece->text);
}

json form(const std::string &name) { return {{"type", name}}; }
json replace(const std::string &kind, const std::string &pattern, const std::string &content) {
  return {{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", content}};
}

TEST(Normalizer, PutsIntoUnicodeForms) {
  const std::string text = "e\u0301 \uFB01 \uAC00"; // e and an acute, the ligature fi, a syllable
  EXPECT_EQ(normalized(form("NFC"), text), "\u00E9 \uFB01 \uAC00");
  EXPECT_EQ(normalized(form("NFD"), "\u00E9 \uFB01 \uAC00"), "e\u0301 \uFB01 \u1100\u1161");
  EXPECT_EQ(normalized(form("NFKC"), text), "\u00E9 fi \uAC00");
  EXPECT_EQ(normalized(form("NFKD"), text), "e\u0301 fi \u1100\u1161");
  EXPECT_EQ(normalized(form("NFC"), "\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(normalized(form("NFC"), "q\u0307\u0323"), "q\u0323\u0307"); // the mark below stands first
}

TEST(Normalizer, LeavesWhatUnicode9DidNotHave) {
  // U+07FD is a mark of Unicode 11: it stays where it is, and nothing moves past it.
  EXPECT_EQ(normalized(form("NFC"), "a\u07FD\u0301\u0323"), "a\u07FD\u0323\u0301");
  EXPECT_EQ(normalized(form("NFD"), "\U00011938"), "\U00011938"); // of Unicode 13, two characters since
  EXPECT_EQ(normalized(form("NFKC"), "\u32FF"), "\u32FF");        // the era Reiwa, of Unicode 12.1
}

TEST(Normalizer, ManyMarksTakeNoLongerThanTheyAre) {
  // 2^20 marks in turn of two classes: a sort that swaps neighbours would take hours.
  std::string text = "a", expected = "a";
  for (int i = 0; i < 1 << 19; ++i)
    text += "\u0301\u0323";
  for (int i = 0; i < 1 << 19; ++i)
    expected += "\u0323";
  for (int i = 0; i < 1 << 19; ++i)
    expected += "\u0301";
  EXPECT_TRUE(normalized(form("NFD"), text) == expected);
}

TEST(Normalizer, ReplacesPrependsAndStrips) {
  EXPECT_EQ(normalized(replace("String", "ab", "x"), "aabb"), "axb");
  EXPECT_EQ(normalized(replace("Regex", "[0-9]+", "#"), "a12b3"), "a#b#");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, "a"), "_a");
  EXPECT_EQ(normalized({{"type", "Prepend"}, {"prepend", "_"}}, ""), "");
  const auto strip = [](bool left, bool right) {
    return json{{"type", "Strip"}, {"strip_left", left}, {"strip_right", right}};
  };
  EXPECT_EQ(normalized(strip(true, false), " \u3000a "), "a ");
  EXPECT_EQ(normalized(strip(false, true), " a \u3000"), " a");
  EXPECT_EQ(normalized(strip(true, true), " \n "), "");
  EXPECT_EQ(normalized(form("Lowercase"), "AÉİ\U00010D50"), "aéi\u0307\U00010D70");
  EXPECT_EQ(normalized(form("ByteLevel"), " é"), "ĠÃ©");
}

TEST(Normalizer, KnowsWhatStandsForTheFirstCharacter) {
  size_t bytes = 0;
  normalized({{"type", "Sequence"}, {"normalizers", json::array()}}, "éa", &bytes);
  EXPECT_EQ(bytes, 2u);
  normalized({{"type", "Prepend"}, {"prepend", "__"}}, "éa", &bytes); // what is put before it stands for it
  EXPECT_EQ(bytes, 4u);
  normalized({{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}}, " a", &bytes);
  EXPECT_EQ(bytes, 0u); // it is gone
  normalized(replace("String", "é", "xyz"), "éa", &bytes);
  EXPECT_EQ(bytes, 3u);
  normalized(replace("String", "éa", "xyz"), "éa", &bytes); // stands for the last character it replaces
  EXPECT_EQ(bytes, 0u);
  normalized(form("NFC"), "e\u0301a", &bytes); // é, whole
  EXPECT_EQ(bytes, 2u);
}

TEST(Normalizer, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const json &normalizer, const std::string &message) {
    expectRefused({{"model", bpeModel({"a"}, {})}, {"normalizer", normalizer}}, message);
  };
  refused(form("Precompiled"), "normalizer.type = \"Precompiled\": expected NFC, NFD, NFKC, NFKD, Lowercase, Replace, "
                               "Prepend, Strip, ByteLevel or Sequence");
  refused({{"type", "Sequence"}, {"normalizers", {form("NFC"), replace("Regex", "a*", "b")}}},
          "normalizer.normalizers[1].pattern = {...}: expected a pattern that does not match nothing");
  refused(replace("String", "", "b"), "normalizer.pattern = {...}: expected a pattern that is not empty");
  refused(replace("Regex", "(", "b"), "normalizer.pattern.Regex = \"(\": not a regular expression that can be used: "
                                      "missing closing parenthesis");
  refused(replace("Glob", "a", "b"), "normalizer.pattern = {...}: expected {\"String\": ...} or {\"Regex\": ...}");
}

RC_GTEST_PROP(Normalizer, FormsAreTheSameTwice, ()) {
  const auto points = *rc::gen::container<std::vector<uint32_t>>(
      rc::gen::oneOf(rc::gen::element<uint32_t>('a', 0xE9, 0x301, 0x323, 0x345, 0x1100, 0x1161, 0x11A8, 0xAC00, 0xFB01,
                                                0x1E9B, 0x7FD, 0x958, 0xF73, 0x344),
                     rc::gen::inRange<uint32_t>(1, 0xD800)));
  std::string text;
  for (const uint32_t point : points)
    appendUtf8(point, text);
  for (const char *name : {"NFC", "NFD", "NFKC", "NFKD"}) {
    const std::string once = normalized(form(name), text);
    RC_ASSERT(normalized(form(name), once) == once);
  }
  RC_ASSERT(normalized(form("NFC"), normalized(form("NFD"), text)) == normalized(form("NFC"), text));
  RC_ASSERT(normalized(form("NFKC"), normalized(form("NFKD"), text)) == normalized(form("NFKC"), text));
}

} // namespace
} // namespace headrace::text
