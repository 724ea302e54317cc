// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a chat template, and any as a conversation behind a NUL: refused by name, or rendered within limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/Utf8.h"
#include "runtime/text/chat/ChatTemplate.h"
#include "tests/fuzz/FuzzCheck.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace headrace::text;
  const std::string_view text(reinterpret_cast<const char *>(data), size);
  const size_t end = text.find('\0');
  const auto chat = ChatTemplate::parse(text.substr(0, end), "chat_template.jinja", R"({"bos_token": "<s>"})");
  if (!chat.ok())
    checkRefusal(chat.status(), "chat_template.jinja:");

  constexpr std::string_view kMessages =
      R"({"messages": [{"role": "system", "content": "S \u00e9"}, {"role": "user", "content": [{"type": "text", "text": "a b"}]},
          {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": [1, 2.5]}}}]},
          {"role": "tool", "content": "7"}], "tools": [{"function": {"name": "f"}}], "chat_template_kwargs": {"n": -3}})";
  const auto conversation =
      Conversation::parse(end == std::string_view::npos ? kMessages : text.substr(end + 1), "messages.json");
  if (!conversation.ok())
    checkRefusal(conversation.status(), "messages.json: ");
  if (!chat.ok() || !conversation.ok())
    return 0;

  RenderOptions options;
  options.unixSeconds = 1'700'000'000;
  TemplateLimits limits;
  limits.steps = 20'000;
  limits.depth = 100;
  limits.bytes = 1 << 20;
  const auto prompt = chat->render(*conversation, options, limits);
  if (!prompt.ok()) {
    checkRefusal(prompt.status(), "chat_template.jinja:");
    return 0;
  }
  FUZZ_CHECK(prompt->size() <= static_cast<size_t>(limits.bytes));
  FUZZ_CHECK(headrace::model::invalidUtf8(*prompt) == std::string_view::npos);
  return 0;
}
