// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/TokenizerJson.h"

#include <atomic>
#include <thread>

#include "tests/unit/text/TokenizerFixture.h"

namespace headrace::text {
namespace {

using testing::ElementsAre;

json plain() { return {{"model", bpeModel({"a", "b", "ab"}, {"a b"})}}; }

json templateOf(const json &single) {
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", json::array()},
          {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {0, 1}}, {"tokens", {"a", "b"}}}}}}};
}
const json kText = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
const json kSpecial = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};

TEST(TokenizerJson, KnowsItsTokens) {
  json file = plain();
  file["added_tokens"] = json::array({addedToken(3, "<s>")});
  const auto tokenizer = mustRead(file);
  EXPECT_EQ(tokenizer->size(), 4);
  EXPECT_EQ(tokenizer->idOf("ab"), 2);
  EXPECT_EQ(tokenizer->idOf("<s>"), 3);
  EXPECT_EQ(tokenizer->idOf("c"), std::nullopt);
  EXPECT_EQ(tokenizer->tokenOf(2), "ab");
  EXPECT_EQ(tokenizer->tokenOf(3), "<s>");
  EXPECT_EQ(tokenizer->tokenOf(4), "");
  EXPECT_EQ(tokenizer->tokenOf(-1), "");
}

TEST(TokenizerJson, IdsMayHaveHoles) {
  json file = plain();
  file["model"]["vocab"]["c"] = 9;
  EXPECT_EQ(mustRead(file)->size(), 10);
  EXPECT_THAT(encoded(*mustRead(file), "cab"), ElementsAre(9, 2));
  EXPECT_EQ(mustRead(file)->decode(Ids{9, 5}), "c");
}

TEST(TokenizerJson, AddsWhatTheTemplateAdds) {
  json file = plain();
  file["post_processor"] = templateOf({kSpecial, kText, kSpecial});
  EXPECT_THAT(encoded(*mustRead(file), "ab", SpecialTokens::Add), ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(encoded(*mustRead(file), "ab", SpecialTokens::Leave), ElementsAre(2));
  EXPECT_THAT(encoded(*mustRead(file), "", SpecialTokens::Add), ElementsAre(0, 1, 0, 1));
  file["post_processor"] = {{"type", "RobertaProcessing"}, {"cls", {"a", 0}}, {"sep", {"b", 1}}};
  EXPECT_THAT(encoded(*mustRead(file), "ab", SpecialTokens::Add), ElementsAre(0, 2, 1));
  file["post_processor"] = {{"type", "Sequence"},
                            {"processors", {{{"type", "ByteLevel"}}, templateOf(json::array({kText}))}}};
  EXPECT_THAT(encoded(*mustRead(file), "ab", SpecialTokens::Add), ElementsAre(2));
}

TEST(TokenizerJson, RefusesAPostProcessorThatItCannotFollow) {
  const auto refused = [](const json &processor, const std::string &message) {
    json file = plain();
    file["post_processor"] = processor;
    expectRefused(file, message);
  };
  const std::string pieces = "expected a list of {\"Sequence\": {\"id\": \"A\"}} and {\"SpecialToken\": {\"id\": ...}}";
  refused(templateOf(json::array({{{"Sequence", {{"id", "B"}}}}})), "post_processor.single = [...]: " + pieces);
  refused(templateOf("$A"), "post_processor.single = \"$A\": " + pieces);
  refused(templateOf(json::array({{{"SpecialToken", {{"id", "</s>"}}}}})),
          "post_processor.special_tokens = {...}: expected the ids of </s>");
  refused({{"type", "RobertaProcessing"}, {"cls", "a"}, {"sep", {"b", 1}}},
          "post_processor.cls = \"a\": expected a token and its id");
  refused({{"type", "RobertaProcessing"}, {"cls", {"a", 0}}, {"sep", {"x", 7}}},
          "post_processor adds id 7: expected that of a token");
  refused({{"type", "Sequence"}, {"processors", {templateOf(json::array({kText})), templateOf(json::array({kText}))}}},
          "post_processor.processors[1].type = \"TemplateProcessing\": expected one processor that adds tokens");
}

TEST(TokenizerJson, RefusesAModelThatItCannotFollow) {
  const auto refused = [](const std::string &key, const json &value, const std::string &message) {
    json file = plain();
    file["model"][key] = value;
    expectRefused(file, message);
  };
  refused("type", "Unigram", "model.type = \"Unigram\": expected BPE: other models are not supported");
  refused("dropout", 0.1, "model.dropout = 0.1: expected null: dropout is not supported");
  refused("end_of_word_suffix", "</w>",
          "model.end_of_word_suffix = \"</w>\": expected null or \"\": such tokens are not supported");
  refused("continuing_subword_prefix", "##",
          "model.continuing_subword_prefix = \"##\": expected null or \"\": such tokens are not supported");
  refused("unk_token", "<unk>", "model.unk_token = \"<unk>\": expected a token of model.vocab");
  refused("fuse_unk", "yes", "model.fuse_unk = \"yes\": expected true or false");
  refused("lucky", 7, "model.lucky = 7: this key is not supported");
  refused("vocab", json::array(), "model.vocab = []: expected an object of tokens and ids");
  const std::string ids = ": expected an id from 0 to 2097151 that no other token has";
  refused("vocab", {{"a", 0}, {"b", 0}}, "model.vocab.b = 0" + ids);
  refused("vocab", {{"a", -1}}, "model.vocab.a = -1" + ids);
  refused("vocab", {{"a", 2097152}}, "model.vocab.a = 2097152" + ids);
  refused("merges", {"a b", "a b c"}, "model.merges[1] = \"a b c\": expected two tokens with a space between them");
  refused("merges", {"a c"}, "model.merges[0] = \"a c\": c is no token of the vocabulary");
  refused("merges", {"b a"}, "model.merges[0] = \"b a\": ba is no token of the vocabulary");
  refused("merges", json::array({json::array({"a", ""})}), "model.merges[0] = [...]:  is no token of the vocabulary");
  refused("merges", {7}, "model.merges[0] = 7: expected two tokens, \"a b\" or [\"a\", \"b\"]");
}

TEST(TokenizerJson, RefusesAFileThatItCannotFollow) {
  json file = plain();
  file["version"] = "2.0";
  expectRefused(file, "version = \"2.0\": expected 1.0");
  file = plain();
  file["post-processor"] = nullptr;
  expectRefused(file, "post-processor = null: this key is not supported");
  expectRefused(json::object(), "model = null: expected an object");
  expectRefused(json::array(), "[]: expected an object");
  const auto broken = Tokenizer::parse("{\"model\": ", "tokenizer.json");
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(std::string(broken.status().message()), testing::StartsWith("tokenizer.json: expected JSON: "));
}

TEST(TokenizerJson, LeavesTruncationAndPaddingAside) {
  json file = plain();
  file["truncation"] = {{"max_length", 1}};
  file["padding"] = {{"strategy", {{"Fixed", 8}}}};
  EXPECT_THAT(encoded(*mustRead(file), "abab"), ElementsAre(2, 2));
}

TEST(TokenizerJson, RefusesATextThatIsNotUtf8WithTheOffset) {
  const absl::StatusOr<Ids> ids = mustRead(plain())->encode("ab\xC3(");
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(ids.status().message()), "expected UTF-8: byte 2 of the text is none");
}

TEST(TokenizerJson, ManyThreadsMayEncode) {
  json file = plain();
  file["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "b+"}}}, {"behavior", "MergedWithPrevious"}};
  const auto tokenizer = mustRead(file);
  const Ids expected = encoded(*tokenizer, "aabbabab");
  std::atomic<int> different = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int time = 0; time < 200; ++time)
        different += *tokenizer->encode("aabbabab", SpecialTokens::Leave) != expected;
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(different, 0);
}

} // namespace
} // namespace headrace::text
