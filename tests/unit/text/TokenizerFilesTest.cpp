// SPDX-License-Identifier: Apache-2.0
//
// Folders without a tokenizer.json.
#include <cstring>

#include "runtime/text/tokenizer/OtherFiles.h"
#include "tests/support/TestFiles.h"
#include "tests/unit/text/TokenizerFixture.h"

namespace headrace::text {
namespace {

using model::TempFolder;
using testing::ElementsAre;

std::shared_ptr<const Tokenizer> mustOpen(const TempFolder &folder) {
  absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer = Tokenizer::open(folder.path());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

std::string refusalOf(const TempFolder &folder) {
  const auto tokenizer = Tokenizer::open(folder.path());
  return tokenizer.ok() ? "" : std::string(tokenizer.status().message()).substr(folder.path().size());
}

// 0 <s>, 1 </s>, 2 a, 3 b, 4 ab, 5 Ġ
void writeGpt2(const TempFolder &folder) {
  folder.write("vocab.json", R"({"<s>": 0, "</s>": 1, "a": 2, "b": 3, "ab": 4, "Ġ": 5})");
  folder.write("merges.txt", "#version: 0.2\na b\n");
}

TEST(TokenizerFiles, NamesWhatItLookedFor) {
  const TempFolder folder;
  const auto tokenizer = Tokenizer::open(folder.path());
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(refusalOf(folder),
            ": expected a tokenizer in it: tokenizer.json, vocab.json with merges.txt, or tokenizer.model");
}

TEST(TokenizerFiles, Gpt2sHaveTheSpecialTokensOfTheConfiguration) {
  const TempFolder folder;
  writeGpt2(folder);
  folder.write("tokenizer_config.json",
               R"({"add_bos_token": true, "bos_token": "</s>", "eos_token": "</s>", "unk_token": "</s>"})");
  const auto tokenizer = mustOpen(folder);
  EXPECT_THAT(encoded(*tokenizer, "ab a</s>", SpecialTokens::Add), ElementsAre(1, 4, 5, 2, 1));
  EXPECT_THAT(encoded(*tokenizer, "ab"), ElementsAre(4));
  EXPECT_EQ(tokenizer->decode(Ids{1, 4, 5, 2}), "ab a");
  EXPECT_EQ(tokenizer->decode(Ids{1, 4, 5, 2}, true), "</s>ab a");
}

TEST(TokenizerFiles, Gpt2sOwnSpecialTokenStandsWhereNoneIsNamed) {
  const TempFolder folder;
  writeGpt2(folder);
  EXPECT_THAT(encoded(*mustOpen(folder), "a<|endoftext|>", SpecialTokens::Add), ElementsAre(2, 6)); // behind all
}

TEST(TokenizerFiles, OlderFoldersHaveAddedTokensInFilesOfTheirOwn) {
  const TempFolder folder;
  writeGpt2(folder);
  folder.write("special_tokens_map.json", R"({"bos_token": {"content": "<s>", "rstrip": true}, "eos_token": "</s>",
                                               "unk_token": "<s>"})");
  folder.write("added_tokens.json", R"({"<new>": 6})");
  folder.write("tokenizer_config.json", R"({"add_eos_token": true})");
  const auto tokenizer = mustOpen(folder);
  EXPECT_THAT(encoded(*tokenizer, "<s> <new>a", SpecialTokens::Add), ElementsAre(0, 6, 2, 1));
  EXPECT_TRUE(tokenizer->isSpecial(0));
  EXPECT_FALSE(tokenizer->isSpecial(6));
}

TEST(TokenizerFiles, AddedTokensDecoderWinsOverTheOlderFiles) {
  const TempFolder folder;
  writeGpt2(folder);
  folder.write("added_tokens.json", R"({"<old>": 6})");
  folder.write("tokenizer_config.json", R"({"bos_token": null, "eos_token": "</s>", "unk_token": null,
    "added_tokens_decoder": {"6": {"content": "<new>", "special": false}},
    "additional_special_tokens": ["<x>"]})");
  const auto tokenizer = mustOpen(folder);
  EXPECT_EQ(tokenizer->tokenOf(6), "<new>");
  EXPECT_EQ(tokenizer->tokenOf(7), "<x>");
  EXPECT_EQ(tokenizer->size(), 8);
}

TEST(TokenizerFiles, BrokenOnesAreRefused) {
  const TempFolder folder;
  writeGpt2(folder);
  folder.write("merges.txt", "#version: 0.2\na b\na x\n");
  EXPECT_EQ(refusalOf(folder), "/merges.txt: line 3, a x: x is no token of the vocabulary");
  folder.write("merges.txt", "a b c\n");
  EXPECT_EQ(refusalOf(folder), "/merges.txt: line 1, a b c: expected two tokens with a space between them");
  folder.write("merges.txt", "a \xFF\n");
  EXPECT_EQ(refusalOf(folder), "/merges.txt: expected UTF-8: byte 2 is none");
  folder.write("merges.txt", "");
  folder.write("added_tokens.json", R"({"<new>": 9})");
  EXPECT_EQ(refusalOf(folder), ": the added token <new> has id 9: expected 6");
  folder.write("added_tokens.json", "[]");
  EXPECT_EQ(refusalOf(folder), "/added_tokens.json: expected an object");
  folder.write("added_tokens.json", "{}");
  folder.write("tokenizer_config.json", R"({"bos_token": 7})");
  EXPECT_EQ(refusalOf(folder), "/tokenizer_config.json: bos_token = 7: expected an object");
  folder.write("vocab.json", R"({"a": 0.5})");
  EXPECT_EQ(refusalOf(folder), "/vocab.json: a = 0.5: expected an id from 0 to 2097151 that no other token has");
}

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value > 127; value >>= 7)
    bytes += static_cast<char>((value & 127) | 128);
  return bytes + static_cast<char>(value);
}
std::string field(uint64_t number, const std::string &bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}
std::string field(uint64_t number, uint64_t value) { return varint(number << 3) + varint(value); }
std::string piece(const std::string &text, float score, uint64_t type = 1) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &score, 4);
  return field(1, field(1, text) + varint(2 << 3 | 5) + bytes + field(3, type));
}
std::string trainer(uint64_t type = 2) { return field(2, field(3, type) + field(35, 1)); }
std::string normalizerSpec(bool prefix = true, bool removesSpaces = false) {
  return field(3, field(1, std::string("identity")) + field(3, prefix) + field(4, removesSpaces));
}
// 0 <unk>, 1 <s>, 2 </s>, 3 <0xC3>, 4 <0xA9>, 5 ▁a, 6 aa, 7 ▁, 8 a, 9 <x>
std::string pieces() {
  return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece("<0xC3>", 0, 6) +
         piece("<0xA9>", 0, 6) + piece("▁a", -1) + piece("aa", -2) + piece("▁", -3) + piece("a", -4) +
         piece("<x>", 0, 4);
}

TEST(TokenizerFiles, SentencePieceMergesThePairOfTheHighestScore) {
  const TempFolder folder;
  folder.write("tokenizer.model", pieces() + trainer() + normalizerSpec());
  const auto tokenizer = mustOpen(folder);
  EXPECT_THAT(encoded(*tokenizer, "aaa é", SpecialTokens::Add), ElementsAre(1, 5, 6, 7, 3, 4)); // ▁a before aa
  EXPECT_THAT(encoded(*tokenizer, ""), ElementsAre());
  EXPECT_THAT(encoded(*tokenizer, "a<s>a"), ElementsAre(5, 1, 8)); // no space stands before what is behind <s>
  EXPECT_THAT(encoded(*tokenizer, "a<x>a"), ElementsAre(5, 9, 8));
  EXPECT_THAT(encoded(*tokenizer, "b"), ElementsAre(7, 0)); // 62 is no token
}

TEST(TokenizerFiles, SentencePieceTextIsItsOwn) {
  const TempFolder folder;
  folder.write("tokenizer.model", pieces() + trainer() + normalizerSpec());
  const auto tokenizer = mustOpen(folder);
  EXPECT_EQ(tokenizer->decode(Ids{1, 5, 5, 0, 2}), "a a \u2047 ");
  EXPECT_EQ(tokenizer->decode(Ids{3, 4, 3, 3, 8}), "é\uFFFD\uFFFDa");
  EXPECT_EQ(tokenizer->decode(Ids{7, 7, 8}), " a"); // one space is the prefix
  TextStream stream(*tokenizer);
  EXPECT_EQ(stream.push(3), "");
  EXPECT_EQ(stream.push(4), "é");
  EXPECT_EQ(stream.push(4), "\uFFFD");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TokenizerFiles, SentencePieceFollowsTheConfiguration) {
  const TempFolder folder;
  folder.write("tokenizer.model", pieces() + trainer() + normalizerSpec(/*prefix=*/false));
  folder.write("tokenizer_config.json", R"({"add_bos_token": false, "add_eos_token": true})");
  EXPECT_THAT(encoded(*mustOpen(folder), "aa", SpecialTokens::Add), ElementsAre(6, 2));
}

TEST(TokenizerFiles, OtherSentencePieceModelsAreRefused) {
  const TempFolder folder;
  const auto refusal = [&](const std::string &content) {
    folder.write("tokenizer.model", content);
    return refusalOf(folder);
  };
  const std::string end = " is not supported: a tokenizer.json made of it may be";
  EXPECT_EQ(refusal(pieces() + trainer(1) + normalizerSpec()),
            "/tokenizer.model: trainer_spec.model_type = 1 (2: BPE)" + end);
  EXPECT_EQ(refusal(pieces() + trainer() + normalizerSpec(true, true)),
            "/tokenizer.model: normalizer_spec.remove_extra_whitespaces = true" + end);
  EXPECT_EQ(refusal(pieces() + trainer() + field(3, field(1, std::string("nfkc")) + field(2, std::string("map")))),
            "/tokenizer.model: normalizer_spec.name = nfkc" + end);
  EXPECT_EQ(refusal(pieces() + piece("b", -5, 5) + trainer() + normalizerSpec()),
            "/tokenizer.model: piece 10, b: type 5 is not supported");
  EXPECT_EQ(refusal(pieces() + piece("a", -5) + trainer() + normalizerSpec()),
            "/tokenizer.model: piece 10, a: another piece is the same");
  EXPECT_EQ(refusal(piece("\xFF", 0) + trainer() + normalizerSpec()),
            "/tokenizer.model: piece 0, : expected UTF-8 of 1 to 512 bytes");
  const std::string cut = "/tokenizer.model: expected a sentencepiece model: it is cut off or something else";
  EXPECT_EQ(refusal((pieces() + trainer()).substr(0, 29)), cut);
  EXPECT_EQ(refusal(""), cut);
  EXPECT_EQ(refusal("{}"), cut);
}

} // namespace
} // namespace headrace::text
