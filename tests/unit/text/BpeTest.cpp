// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Bpe.h"

#include <gtest/gtest.h>

#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/text/TokenizerFixture.h"

namespace headrace::text {
namespace {

using testing::ElementsAre;

json fileOf(const json &model) { return {{"model", model}}; }

TEST(Bpe, MergesInTheOrderOfTheMergesNotOfTheText) {
  // 0 a, 1 b, 2 c, 3 bc, 4 ab, 5 abc: "bc" comes first, so "abc" is a + bc, and that is merged last.
  const auto tokenizer = mustRead(fileOf(bpeModel({"a", "b", "c", "bc", "ab", "abc"}, {"b c", "a b", "a bc"})));
  EXPECT_THAT(encoded(*tokenizer, "abc"), ElementsAre(5));
  EXPECT_THAT(encoded(*tokenizer, "ab"), ElementsAre(4));
  EXPECT_THAT(encoded(*tokenizer, "abbc"), ElementsAre(4, 3));
  EXPECT_THAT(encoded(*tokenizer, ""), ElementsAre());
}

TEST(Bpe, MergesTheLeftmostOfEqualPairs) {
  const auto tokenizer = mustRead(fileOf(bpeModel({"a", "aa", "aaaa"}, {"a a", "aa aa"})));
  EXPECT_THAT(encoded(*tokenizer, "aaaaa"), ElementsAre(2, 0));      // aaaa + a
  EXPECT_THAT(encoded(*tokenizer, "aaaaaaa"), ElementsAre(2, 1, 0)); // aaaa + aa + a
}

TEST(Bpe, TheLaterOfTwoMergesOfAPairCounts) {
  // "a b" has rank 2 then, behind "b c".
  const auto tokenizer = mustRead(fileOf(bpeModel({"a", "b", "c", "ab", "bc"}, {"a b", "b c", "a b"})));
  EXPECT_THAT(encoded(*tokenizer, "abc"), ElementsAre(0, 4));
}

TEST(Bpe, UnknownCharactersAreLeftOutOrAreTheUnknownToken) {
  json model = bpeModel({"<unk>", "a"}, {});
  EXPECT_THAT(encoded(*mustRead(fileOf(model)), "axya"), ElementsAre(1, 1));
  model["unk_token"] = "<unk>";
  EXPECT_THAT(encoded(*mustRead(fileOf(model)), "axya"), ElementsAre(1, 0, 0, 1));
  model["fuse_unk"] = true;
  EXPECT_THAT(encoded(*mustRead(fileOf(model)), "axyax"), ElementsAre(1, 0, 1, 0));
}

TEST(Bpe, ByteFallbackTakesACharacterWhoseBytesAreAllTokens) {
  // é is C3 A9, ü is C3 BC: BC is no token, so ü is unknown.
  json model = bpeModel({"<unk>", "a", "<0xC3>", "<0xA9>"}, {});
  model["unk_token"] = "<unk>";
  model["byte_fallback"] = true;
  EXPECT_THAT(encoded(*mustRead(fileOf(model)), "aéü"), ElementsAre(1, 2, 3, 0));
}

TEST(Bpe, IgnoreMergesTakesAWordThatIsAToken) {
  json model = bpeModel({"a", "b", "c", "ab", "abc"}, {"a b"});
  EXPECT_THAT(encoded(*mustRead(fileOf(model)), "abc"), ElementsAre(3, 2));
  model["ignore_merges"] = true;
  EXPECT_THAT(encoded(*mustRead(fileOf(model)), "abc"), ElementsAre(4));
  EXPECT_THAT(encoded(*mustRead(fileOf(model)), "abca"), ElementsAre(3, 2, 0));
}

// The definition: again and again the pair of lowest rank, the leftmost of equals.
std::vector<std::string> mergedPlainly(std::vector<std::string> symbols, const std::vector<std::string> &merges) {
  while (true) {
    size_t best = merges.size(), place = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      for (size_t rank = 0; rank < best; ++rank)
        if (merges[rank] == symbols[i] + " " + symbols[i + 1]) {
          best = rank;
          place = i;
        }
    if (best == merges.size())
      return symbols;
    symbols[place] += symbols[place + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

RC_GTEST_PROP(Bpe, WordsOfAnyLengthAreMergedAsDefined, ()) {
  std::vector<std::string> tokens = {"a", "b", "c"}, merges;
  const int count = *rc::gen::inRange(0, 20);
  for (int i = 0; i < count; ++i) {
    const std::string left = *rc::gen::elementOf(tokens), right = *rc::gen::elementOf(tokens);
    if (std::find(tokens.begin(), tokens.end(), left + right) == tokens.end())
      tokens.push_back(left + right);
    if (std::find(merges.begin(), merges.end(), left + " " + right) == merges.end())
      merges.push_back(left + " " + right);
  }
  const auto tokenizer = mustRead(fileOf(bpeModel(tokens, merges)));
  const size_t length = *rc::gen::inRange<size_t>(0, 200); // short words and long ones are merged in two ways
  const auto letters = *rc::gen::container<std::vector<std::string>>(
      length, rc::gen::elementOf(std::vector<std::string>{"a", "b", "c"}));
  std::string word;
  for (const std::string &letter : letters)
    word += letter;
  for (int time = 0; time < 2; ++time) // the second time from what was kept of the first
    RC_ASSERT(tokensOf(*tokenizer, word) == mergedPlainly(letters, merges));
}

TEST(Bpe, AMegabyteOfOneLetterIsOneWord) {
  // 2^20 letters: 2^17 tokens of 8. A quadratic merge would take hours.
  const auto tokenizer = mustRead(fileOf(bpeModel({"a", "aa", "aaaa", "aaaaaaaa"}, {"a a", "aa aa", "aaaa aaaa"})));
  EXPECT_EQ(encoded(*tokenizer, std::string(1 << 20, 'a')), Ids(1 << 17, 3));
}

} // namespace
} // namespace headrace::text
