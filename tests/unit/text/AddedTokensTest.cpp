// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/AddedTokens.h"

#include "tests/unit/text/TokenizerFixture.h"

namespace headrace::text {
namespace {

using testing::ElementsAre;

// Tokens 0 to 5: one for each character of a text; 6: "<s>" with these flags.
json fileOf(const json &flags = json::object()) {
  json token = addedToken(6, "<s>");
  token.update(flags);
  return {{"added_tokens", {token}}, {"model", bpeModel({"a", " ", "<", "s", ">", "\xC3\xA9"}, {})}};
}

TEST(AddedTokens, AreFoundAnywhere) {
  const auto tokenizer = mustRead(fileOf());
  EXPECT_THAT(encoded(*tokenizer, "a<s>a<s<s>"), ElementsAre(0, 6, 0, 2, 3, 6));
  EXPECT_THAT(encoded(*tokenizer, "<s>"), ElementsAre(6));
}

TEST(AddedTokens, SingleWordStandsAlone) {
  const auto tokenizer = mustRead(fileOf({{"single_word", true}}));
  EXPECT_THAT(encoded(*tokenizer, "a <s> a"), ElementsAre(0, 1, 6, 1, 0));
  EXPECT_THAT(encoded(*tokenizer, "a<s>"), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(encoded(*tokenizer, "<s>é"), ElementsAre(2, 3, 4, 5));
}

TEST(AddedTokens, StripTakesTheWhiteSpaceBeside) {
  EXPECT_THAT(encoded(*mustRead(fileOf({{"lstrip", true}})), "a  <s> a"), ElementsAre(0, 6, 1, 0));
  EXPECT_THAT(encoded(*mustRead(fileOf({{"rstrip", true}})), "a <s>  a"), ElementsAre(0, 1, 6, 0));
  EXPECT_THAT(encoded(*mustRead(fileOf({{"lstrip", true}, {"rstrip", true}})), " <s> <s> "), ElementsAre(6, 6));
}

TEST(AddedTokens, ATokenInSpaceThatWasTakenBeginsTheRestAnew) {
  // "<s>" takes both spaces, of which the first is a token: behind it the second space stands once more.
  json file = fileOf({{"rstrip", true}});
  file["added_tokens"].push_back(addedToken(1, " "));
  file["added_tokens"][1]["single_word"] = false;
  const auto tokenizer = mustRead(file);
  EXPECT_THAT(encoded(*tokenizer, "<s>  a"), ElementsAre(6, 1, 1, 0));
}

TEST(AddedTokens, TheLongestOfTheLeftmostIsTaken) {
  json file = fileOf();
  file["added_tokens"].push_back(addedToken(7, "<s>a"));
  file["added_tokens"].push_back(addedToken(8, "s>aa"));
  EXPECT_THAT(encoded(*mustRead(file), "<s>aa"), ElementsAre(7, 0));
}

TEST(AddedTokens, NormalizedOnesAreFoundInTheNormalizedText) {
  json file = fileOf({{"normalized", true}});
  file["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_THAT(encoded(*mustRead(file), "A<S>"), ElementsAre(0, 6));
  file["added_tokens"][0]["normalized"] = false;
  EXPECT_THAT(encoded(*mustRead(file), "A<S><s>"), ElementsAre(0, 2, 3, 4, 6));
}

TEST(AddedTokens, SpecialOnesAreHidden) {
  json file = fileOf();
  file["decoder"] = {{"type", "Fuse"}};
  file["added_tokens"].push_back({{"id", 7}, {"content", "<b>"}, {"special", false}, {"normalized", false}});
  const auto tokenizer = mustRead(file);
  EXPECT_TRUE(tokenizer->isSpecial(6));
  EXPECT_FALSE(tokenizer->isSpecial(7));
  EXPECT_FALSE(tokenizer->isSpecial(-1));
  EXPECT_FALSE(tokenizer->isSpecial(8));
  EXPECT_EQ(tokenizer->decode(Ids{0, 6, 7}), "a<b>");
  EXPECT_EQ(tokenizer->decode(Ids{0, 6, 7}, true), "a<s><b>");
}

TEST(AddedTokens, AreRefusedWhereTheyContradict) {
  const auto withToken = [](const json &token) {
    json file = fileOf();
    file["added_tokens"].push_back(token);
    return file;
  };
  expectRefused(withToken(addedToken(9, "<b>")),
                "added_tokens[1].id = 9: expected 7, the next one behind model.vocab and the added tokens before");
  expectRefused(withToken(addedToken(3, "a")), "added_tokens[1].id = 3: expected 0, the token's in model.vocab");
  expectRefused(withToken(addedToken(7, "<s>")), "the added token <s> stands twice, or has another one's id");
  expectRefused(withToken(addedToken(7, std::string(1025, 'x'))),
                "added_tokens[1].content = \"" + std::string(76, 'x') + "...: expected at most 1024 bytes");
  expectRefused(withToken({{"id", 7}}), "added_tokens[1].content is missing: expected a string");
  expectRefused(withToken({{"id", 7}, {"content", "<b>"}, {"colour", 1}}),
                "added_tokens[1].colour = 1: this key is not supported");
}

} // namespace
} // namespace headrace::text
