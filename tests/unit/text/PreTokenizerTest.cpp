// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/PreTokenizer.h"

#include "runtime/text/tokenizer/Utf8.h"
#include "tests/unit/text/TokenizerFixture.h"

namespace headrace::text {
namespace {

using testing::ElementsAre;

std::vector<std::string> words(const json &preTokenizer, const std::string &text, bool atBegin = true) {
  const absl::StatusOr<PreTokenizer> made = PreTokenizer::parse(preTokenizer, "tokenizer.json");
  EXPECT_TRUE(made.ok()) << made.status();
  PreTokenizerMemory memory;
  MatchMemory matching;
  std::vector<std::string> found;
  const absl::Status status = made->apply({text, atBegin ? codePointAt(text, 0).bytes : 0}, memory, matching,
                                          [&](std::string_view word) { found.emplace_back(word); });
  EXPECT_TRUE(status.ok()) << status;
  return found;
}

json split(const std::string &behavior, bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}};
}
json metaspace(const std::string &scheme, bool splits = true) {
  return {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", scheme}, {"split", splits}};
}
json byteLevel(bool prefix, bool regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"use_regex", regex}, {"trim_offsets", true}};
}
json sequence(const std::vector<json> &steps) { return {{"type", "Sequence"}, {"pretokenizers", steps}}; }

TEST(PreTokenizer, SplitDoesWithMatchesAsItsBehaviorSays) {
  const std::string text = "the-final--countdown-";
  EXPECT_THAT(words(split("Isolated"), text), ElementsAre("the", "-", "final", "-", "-", "countdown", "-"));
  EXPECT_THAT(words(split("Removed"), text), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(words(split("MergedWithPrevious"), text), ElementsAre("the-", "final-", "-", "countdown-"));
  EXPECT_THAT(words(split("MergedWithNext"), text), ElementsAre("the", "-final", "-", "-countdown", "-"));
  EXPECT_THAT(words(split("Contiguous"), text), ElementsAre("the", "-", "final", "--", "countdown", "-"));
  EXPECT_THAT(words(split("Removed", /*invert=*/true), text), ElementsAre("-", "-", "-", "-"));
  EXPECT_THAT(words(split("MergedWithPrevious", true), text), ElementsAre("the", "-final", "-", "-countdown", "-"));
}

TEST(PreTokenizer, ByteLevelCutsAsGpt2AndGivesBytes) {
  EXPECT_THAT(words(byteLevel(false, true), "It's 12  é!"), ElementsAre("It", "'s", " 12", " ", " é", "!"));
  EXPECT_THAT(words(byteLevel(true, true), "a b"), ElementsAre(" a", " b"));
  EXPECT_THAT(words(byteLevel(true, false), " a b"), ElementsAre(" a b"));
  // Not last, it gives letters: é is Ã and ©, and the next step sees these.
  EXPECT_THAT(words(sequence({byteLevel(false, false), split("Isolated")}), " é-"), ElementsAre("ĠÃ©", "-"));
}

TEST(PreTokenizer, MetaspaceStandsForSpaces) {
  EXPECT_THAT(words(metaspace("always"), "a  b"), ElementsAre("_a", "_", "_b"));
  EXPECT_THAT(words(metaspace("always"), " a"), ElementsAre("_a")); // it is there already
  EXPECT_THAT(words(metaspace("never"), "a b"), ElementsAre("a", "_b"));
  EXPECT_THAT(words(metaspace("first"), "a b"), ElementsAre("_a", "_b"));
  EXPECT_THAT(words(metaspace("first"), "a b", /*atBegin=*/false), ElementsAre("a", "_b"));
  EXPECT_THAT(words(metaspace("always", false), "a  b"), ElementsAre("_a__b"));
  EXPECT_THAT(words(sequence({split("Isolated"), metaspace("first")}), "a-b"), ElementsAre("_a", "-", "b"));
  EXPECT_THAT(words(sequence({split("Isolated"), metaspace("always")}), "a-b"), ElementsAre("_a", "_-", "_b"));
}

TEST(PreTokenizer, CutsAtDigitsPunctuationAndSpaces) {
  const json digits = {{"type", "Digits"}};
  EXPECT_THAT(words(digits, "a12b٣"), ElementsAre("a", "12", "b", "٣"));
  EXPECT_THAT(words({{"type", "Digits"}, {"individual_digits", true}}, "a12"), ElementsAre("a", "1", "2"));
  EXPECT_THAT(words({{"type", "Punctuation"}}, "a!?$。"), ElementsAre("a", "!", "?", "$", "。"));
  EXPECT_THAT(words({{"type", "Punctuation"}, {"behavior", "Contiguous"}}, "a!?b"), ElementsAre("a", "!?", "b"));
  EXPECT_THAT(words({{"type", "Whitespace"}}, "a_1 +-\n b"), ElementsAre("a_1", "+-", "b"));
  EXPECT_THAT(words({{"type", "WhitespaceSplit"}}, "a_1+\u3000b"), ElementsAre("a_1+", "b"));
  EXPECT_THAT(words(nullptr, "a b"), ElementsAre("a b"));
}

TEST(PreTokenizer, RefusesWhatItDoesNotKnow) {
  const auto refused = [](const json &preTokenizer, const std::string &message) {
    expectRefused({{"model", bpeModel({"a"}, {})}, {"pre_tokenizer", preTokenizer}}, message);
  };
  refused({{"type", "UnicodeScripts"}},
          "pre_tokenizer.type = \"UnicodeScripts\": expected ByteLevel, Split, Metaspace, Digits, Punctuation, "
          "Whitespace, WhitespaceSplit or Sequence");
  refused(sequence({split("Isolated"), split("Sometimes")}),
          "pre_tokenizer.pretokenizers[1].behavior = \"Sometimes\": expected one of Removed, Isolated, "
          "MergedWithPrevious, MergedWithNext, Contiguous");
  refused(metaspace("last"), "pre_tokenizer.prepend_scheme = \"last\": expected one of always, first, never");
  json long_ = metaspace("always");
  long_["replacement"] = "__";
  refused(long_, "pre_tokenizer.replacement = \"__\": expected one character");
  json contradicting = metaspace("always");
  contradicting["add_prefix_space"] = false;
  refused(contradicting, "pre_tokenizer.add_prefix_space = false: expected true beside this prepend_scheme");
  refused({{"type", "ByteLevel"}, {"add_prefix_space", 1}},
          "pre_tokenizer.add_prefix_space = 1: expected true or false");
}

} // namespace
} // namespace headrace::text
