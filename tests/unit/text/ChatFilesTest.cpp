// SPDX-License-Identifier: Apache-2.0
//
// Where templates, their special tokens and conversations are read from.
#include <utility>

#include "runtime/text/chat/ChatTemplate.h"
#include "tests/support/TestFiles.h"

namespace headrace::text {
namespace {

using model::TempFolder;

std::string rendered(const absl::StatusOr<ChatTemplate> &chat) {
  if (!chat.ok())
    return std::string(chat.status().message());
  Conversation conversation;
  conversation.add("user", "Hello");
  return chat->render(conversation).value_or("failed");
}

TEST(ChatFiles, TheFileStandsOverTheConfig) {
  const TempFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": "config {{ bos_token }}", "bos_token": "<s>"})");
  EXPECT_EQ(rendered(ChatTemplate::open(folder.path())), "config <s>");
  folder.write("chat_template.jinja", "file {{ bos_token }}\n");
  EXPECT_EQ(rendered(ChatTemplate::open(folder.path())), "file <s>");
  const std::string other = folder.write("other.jinja", "other {{ bos_token }}");
  EXPECT_EQ(rendered(ChatTemplate::open(folder.path(), other)), "other <s>");
}

TEST(ChatFiles, OfSeveralTemplatesTheDefaultIsTaken) {
  const TempFolder folder;
  const std::string path = folder.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(rendered(ChatTemplate::open(folder.path())), "d");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "rag", "template": "r"}]})");
  EXPECT_REFUSED(ChatTemplate::open(folder.path()), absl::StatusCode::kInvalidArgument,
                 path + ": chat_template has \"tool_use\", \"rag\": expected one named \"default\"");
  folder.write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_REFUSED(ChatTemplate::open(folder.path()), absl::StatusCode::kInvalidArgument,
                 path + ": chat_template: expected objects with a name and a template, found {...}");
  folder.write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_REFUSED(ChatTemplate::open(folder.path()), absl::StatusCode::kInvalidArgument,
                 path + ": chat_template = 5: expected a string or a list of named templates");
}

TEST(ChatFiles, SpecialTokensAreStringsOrObjectsOfEitherFile) {
  const TempFolder folder;
  folder.write("chat_template.jinja",
               "{{ bos_token }} {{ eos_token }} {{ pad_token is defined }} {{ image_token }} {{ eot }}");
  folder.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>",
      "pad_token": null, "image_token": "<i>", "extra_special_tokens": {"eot": "<eot>"}})");
  EXPECT_EQ(rendered(ChatTemplate::open(folder.path())), "<s> </s> False <i> <eot>");
  // The older file stands over the config, unless that lists the added tokens itself.
  folder.write("special_tokens_map.json", R"({"eos_token": {"content": "<end>"}, "pad_token": "<pad>"})");
  EXPECT_EQ(rendered(ChatTemplate::open(folder.path())), "<s> <end> True <i> <eot>");
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>", "added_tokens_decoder": {}})");
  EXPECT_EQ(rendered(ChatTemplate::open(folder.path())), "<s> </s> False  ");
}

TEST(ChatFiles, WhatIsMissingOrBrokenIsNamed) {
  const TempFolder folder;
  EXPECT_REFUSED(ChatTemplate::open(folder.path()), absl::StatusCode::kNotFound,
                 folder.path() +
                     ": no chat template: expected chat_template.jinja, or chat_template in tokenizer_config.json");
  EXPECT_REFUSED(ChatTemplate::open(folder.path(), "/nowhere.jinja"), absl::StatusCode::kNotFound,
                 "/nowhere.jinja: no such file");
  const std::string path = folder.write("tokenizer_config.json", R"({"chat_template": "\n{{ x | nothing }}"})");
  EXPECT_REFUSED(ChatTemplate::open(folder.path()), absl::StatusCode::kInvalidArgument,
                 path + ": chat_template:2: the filter 'nothing' is not supported");
  folder.write("tokenizer_config.json", "[]");
  EXPECT_REFUSED(ChatTemplate::open(folder.path()), absl::StatusCode::kInvalidArgument,
                 path + ": expected an object, found []");
}

TEST(Conversation, IsAListOrAnObjectWithToolsAndVariables) {
  auto conversation = Conversation::parse(R"([{"role": "user", "content": "Hi"}])", "c.json");
  ASSERT_TRUE(conversation.ok()) << conversation.status();
  EXPECT_EQ(conversation->messages(), 1);
  EXPECT_EQ(conversation->role(0), "user");
  conversation->addFirst("system", "S");
  conversation->add("assistant", "A");
  EXPECT_EQ(conversation->messages(), 3);
  EXPECT_EQ(conversation->role(0), "system");
  EXPECT_EQ(conversation->role(1), "user");

  conversation = Conversation::parse(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"arguments": {"z": 1, "a": 2.0}}}]},
      {"role": "tool", "content": ""}], "tools": [{"x": 1}], "chat_template_kwargs": {"level": "low"}})",
                                     "c.json");
  ASSERT_TRUE(conversation.ok()) << conversation.status();
  const auto chat = ChatTemplate::parse("{{ messages | tojson }}{{ tools }}{{ level }}", "t");
  EXPECT_EQ(*chat->render(*conversation),
            R"([{"role": "user", "content": [{"type": "text", "text": "a"}]}, )"
            R"({"role": "assistant", "tool_calls": [{"function": {"arguments": {"z": 1, "a": 2.0}}}]}, )"
            R"({"role": "tool", "content": ""}][{'x': 1}]low)");
}

// Llama 3.1 and others have roles of their own for what a program answers, which may be an object.
TEST(ChatFiles, WhichRolesThereAreTheTemplateKnows) {
  const auto chat = ChatTemplate::parse("{% for m in messages %}<{{ m.role }}>{{ m.content if m.content is string else "
                                        "m.content | tojson }}{% endfor %}",
                                        "t");
  const auto made = [&](const char *json) { return *chat->render(*Conversation::parse(json, "c.json")); };
  EXPECT_EQ(made(R"([{"role": "user", "content": "Hi"}, {"role": "ipython", "content": "out"}])"),
            "<user>Hi<ipython>out");
  EXPECT_EQ(made(R"([{"role": "tool", "content": {"a": 1}}, {"role": "function", "content": {"b": []}}])"),
            R"(<tool>{"a": 1}<function>{"b": []})");
}

TEST(ChatFiles, ConversationsWithToolsHaveTheTemplateForThem) {
  const TempFolder folder;
  folder.write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": [
      {"name": "default", "template": "{{ bos_token }}plain"},
      {"name": "tool_use", "template": "{{ bos_token }}with {{ tools[0].name }}"}]})");
  const auto chat = ChatTemplate::open(folder.path());
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto made = [&](const char *json) { return *chat->render(*Conversation::parse(json, "c.json")); };
  EXPECT_EQ(made(R"([{"role": "user", "content": "a"}])"), "<s>plain");
  EXPECT_EQ(made(R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "x"}]})"), "<s>with x");
}

TEST(ChatFiles, SaysWhetherPartsAreTaken) {
  const auto takes = [](const char *source) { return ChatTemplate::parse(source, "t")->takesParts(); };
  EXPECT_TRUE(takes("{% for part in messages[0].content %}{{ part.text }}{% endfor %}"));
  EXPECT_TRUE(takes("{{ messages[0].content[0].text }}"));
  EXPECT_FALSE(takes("{{ messages[0].content }}"));          // the list as Python writes it
  EXPECT_FALSE(takes("{{ messages[0].content | tojson }}")); // as JSON
  EXPECT_FALSE(takes("{{ 'a' + messages[0].content }}"));    // raises
  EXPECT_FALSE(takes("nothing of what is said"));
  const auto parts = Conversation::parse(R"([{"role": "user", "content": [{"type": "text", "text": "a"},
      {"type": "text", "text": "b"}]}, {"role": "assistant", "content": "c"}])",
                                         "c.json");
  EXPECT_TRUE(parts->hasParts());
  EXPECT_FALSE(parts->joined().hasParts());
  EXPECT_EQ(*ChatTemplate::parse("{{ messages[0].content }}|{{ messages[1].content }}", "t")->render(parts->joined()),
            "a\nb|c");
}

TEST(Conversation, WhatIsWrongIsRefusedByMessageAndKey) {
  const std::pair<const char *, const char *> cases[] = {
      {"5", "c.json: messages = 5: expected a list"},
      {"[]", "c.json: messages is empty: expected at least one message"},
      {"{}", "c.json: messages is missing"},
      {R"({"messages": {}})", "c.json: messages = {}: expected a list"},
      {R"({"messages": [], "model": "x"})",
       "c.json: \"model\" is no key of a conversation: expected messages, tools or chat_template_kwargs"},
      {R"({"messages": [], "tools": 1})", "c.json: tools = 1: expected a list"},
      {R"({"messages": [], "tools": ["x"]})", "c.json: tools[0] = \"x\": expected an object"},
      {R"({"messages": [], "chat_template_kwargs": []})", "c.json: chat_template_kwargs = []: expected an object"},
      {R"({"messages": [], "chat_template_kwargs": {"tools": 1}})",
       "c.json: chat_template_kwargs: tools is a variable that the conversation itself sets"},
      {R"(["x"])", "c.json: messages[0] = \"x\": expected an object"},
      {R"([{"content": "x"}])", "c.json: messages[0].role is missing"},
      {R"([{"role": 1, "content": "x"}])", "c.json: messages[0].role = 1: expected a string"},
      {R"([{"role": "user", "content": {"a": 1}}])",
       "c.json: messages[0].content = {...}: expected a string or a list of parts"},
      {R"([{"role": "user"}])", "c.json: messages[0].content is missing: expected a string or a list of parts"},
      {R"([{"role": "user", "content": null}])",
       "c.json: messages[0].content is null: expected a string or a list of parts"},
      {R"([{"role": "user", "content": 5}])", "c.json: messages[0].content = 5: expected a string or a list of parts"},
      {R"([{"role": "user", "content": [5]}])", "c.json: messages[0].content[0] = 5: expected an object of type text"},
      {R"([{"role": "user", "content": [{"type": "image"}]}])",
       "c.json: messages[0].content[0].type = \"image\": expected \"text\", the only type of part that is supported"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])",
       "c.json: messages[0].content[0].text = null: expected a string"},
      {R"([{"role": "assistant", "content": "", "tool_calls": 5}])",
       "c.json: messages[0].tool_calls = 5: expected a list"},
      {R"([{"role": "user", "role": "user", "content": ""}])",
       "c.json: key \"role\" stands twice: expected each key once in an object"},
  };
  for (const auto &[json, message] : cases)
    EXPECT_REFUSED(Conversation::parse(json, "c.json"), absl::StatusCode::kInvalidArgument, message);
  EXPECT_FALSE(Conversation::parse("[{", "c.json").ok());
  std::string many = "[{";
  for (int i = 0; i <= 10'000; ++i) // one too many
    many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":0";
  EXPECT_REFUSED(Conversation::parse(many + "}]", "c.json"), absl::StatusCode::kInvalidArgument,
                 "c.json: an object has more than 10000 keys: expected fewer");
  Conversation conversation;
  EXPECT_REFUSED(conversation.set("messages", "1"), absl::StatusCode::kInvalidArgument,
                 "messages is a variable that the conversation itself sets");
  EXPECT_FALSE(conversation.set("x", "{").ok());
  EXPECT_REFUSED(conversation.setAll("5"), absl::StatusCode::kInvalidArgument,
                 "the template's variables = 5: expected an object");
}

} // namespace
} // namespace headrace::text
