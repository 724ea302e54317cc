// SPDX-License-Identifier: Apache-2.0
//
// Chat templates against what jinja2 renders, set up as transformers sets it up (tests/golden/chat/make_chats.py).
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/base/FileIo.h"
#include "runtime/base/Xxh64.h"
#include "runtime/text/chat/ChatTemplate.h"
#include "runtime/text/chat/PyText.h"
#include "tests/support/SourceDir.h"

namespace headrace::text {
namespace {

using nlohmann::ordered_json;

constexpr const char *kTokens = R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}})";

std::string readGolden(const std::string &name) {
  return *model::readTextFile(sourceDir() + "/tests/golden/chat/" + name);
}

std::string digest(const std::string &text) {
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016" PRIx64,
                model::xxh64({reinterpret_cast<const std::byte *>(text.data()), text.size()}, 0));
  return hex;
}

absl::StatusOr<std::string> render(const std::string &source, const ordered_json &conversation, bool generation) {
  auto parsed = Conversation::parse(conversation.dump(), "conversation");
  if (!parsed.ok())
    return parsed.status();
  auto chat = ChatTemplate::parse(source, "template", kTokens);
  if (!chat.ok())
    return chat.status();
  RenderOptions options;
  options.addGenerationPrompt = generation;
  ::setenv("TZ", "UTC", 1);
  options.unixSeconds = 1'700'000'000; // 14 November 2023, 22:13:20
  return chat->render(*parsed, options);
}

// A refusal without "template:LINE: ".
std::string raised(const absl::Status &status) {
  const std::string message(status.message());
  const size_t line = message.find(": ");
  return message.rfind("template:", 0) == 0 && line != std::string::npos ? message.substr(line + 2) : message;
}

TEST(ChatGolden, SixTemplatesRenderTwoHundredConversationsAsJinja2Does) {
  const ordered_json conversations = ordered_json::parse(readGolden("conversations.json"));
  const ordered_json rendered = ordered_json::parse(readGolden("rendered.json"));
  ASSERT_EQ(conversations.size(), 200u);
  ASSERT_EQ(rendered["templates"].size(), 6u);
  for (const auto &[name, expected] : rendered["templates"].items()) {
    const std::string source = readGolden(name);
    for (size_t i = 0; i < conversations.size(); ++i) {
      SCOPED_TRACE(name + ", conversation " + std::to_string(i));
      const auto text = render(source, conversations[i], i % 3 != 0);
      const std::string answer = expected["answers"][i];
      if (const auto full = expected["full"].find(std::to_string(i)); full != expected["full"].end()) {
        ASSERT_TRUE(text.ok()) << text.status();
        EXPECT_EQ(*text, full->get<std::string>());
      }
      EXPECT_EQ(text.ok() ? digest(*text) : "raised: " + raised(text.status()),
                answer.rfind("raised: ", 0) == 0 ? jinja::printable(answer, 1000) : answer);
    }
  }
}

TEST(ChatGolden, EveryConstructRendersAsJinja2DoesOrFailsWithItsMessage) {
  const ordered_json hand = ordered_json::parse(readGolden("expressions.json"));
  const ordered_json rendered = ordered_json::parse(readGolden("rendered.json"))["expressions"];
  ASSERT_EQ(hand["templates"].size(), rendered.size());
  ASSERT_GE(rendered.size(), 150u);
  for (size_t i = 0; i < rendered.size(); ++i) {
    const std::string source = hand["templates"][i];
    SCOPED_TRACE(source);
    const auto text = render(source, hand["conversation"], true);
    if (const auto expected = rendered[i].find("text"); expected != rendered[i].end()) {
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(*text, expected->get<std::string>());
    } else {
      ASSERT_FALSE(text.ok()) << *text;
      EXPECT_EQ(raised(text.status()), jinja::printable(rendered[i]["error"].get<std::string>(), 1000));
    }
  }
}

} // namespace
} // namespace headrace::text
