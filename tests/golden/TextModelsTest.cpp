// SPDX-License-Identifier: Apache-2.0
//
// The golden models that speak (text-models/README.md), without the model: texts to ids, ids to texts, and turns of a
// chat through the template, as transformers has them.
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/text/chat/ChatTemplate.h"
#include "runtime/text/tokenizer/TextStream.h"
#include "tests/support/SourceDir.h"

namespace headrace::text {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

class TextModels : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    const std::string folder = sourceDir() + "/tests/golden/text-models/" + GetParam();
    std::ifstream file(folder + "/reference-text.json");
    reference_ = Json::parse(file);
    auto tokenizer = Tokenizer::open(folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    tokenizer_ = *std::move(tokenizer);
    auto chat = ChatTemplate::open(folder);
    ASSERT_TRUE(chat.ok()) << chat.status();
    template_ = std::make_unique<ChatTemplate>(*std::move(chat));
  }

  // `prompt` is encoded to its ids, and what was said after it is its text, whole and as it came.
  void expectSaid(const Json &said, SpecialTokens specials) const {
    const auto ids = tokenizer_->encode(said["prompt"].get<std::string>(), specials);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(Json(*ids), said["ids"]);
    Ids whole = said["ids"].get<Ids>();
    const Ids made = said["new_ids"].get<Ids>();
    EXPECT_EQ(tokenizer_->decode(made), said["text"]);
    EXPECT_EQ(tokenizer_->decode(made, true), said["text_with_special"]);
    TextStream stream(*tokenizer_);
    std::string text;
    for (const int32_t id : made)
      text += stream.push(id);
    EXPECT_EQ(text + stream.finish(), said["text"]);
    whole.insert(whole.end(), made.begin(), made.end());
    EXPECT_EQ(tokenizer_->decode(whole), said["whole"]);
  }

  Json reference_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
};

TEST_P(TextModels, PromptsAndWhatFollowsThem) {
  ASSERT_EQ(reference_["prompts"].size(), 6u);
  for (const Json &said : reference_["prompts"])
    expectSaid(said, SpecialTokens::Add);
}

TEST_P(TextModels, TurnsOfAChat) {
  ASSERT_EQ(reference_["chats"].size(), 3u);
  for (const Json &chat : reference_["chats"]) {
    Conversation conversation;
    if (!chat["system"].is_null())
      conversation.add("system", chat["system"].get<std::string>());
    ASSERT_EQ(chat["turns"].size(), 3u);
    for (const Json &turn : chat["turns"]) {
      conversation.add("user", turn["question"].get<std::string>());
      const auto prompt = template_->render(conversation);
      ASSERT_TRUE(prompt.ok()) << prompt.status();
      EXPECT_EQ(*prompt, turn["prompt"]);
      expectSaid(turn, SpecialTokens::Leave);
      conversation.add("assistant", turn["text"].get<std::string>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TextModels, testing::Values("qwen3-chat", "llama-byte-fallback"),
                         [](const auto &info) { return std::string(info.param).substr(0, 5); });

} // namespace
} // namespace headrace::text
