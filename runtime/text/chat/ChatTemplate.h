// SPDX-License-Identifier: Apache-2.0
//
// A model's chat template: Jinja as the families' templates use it, rendered as transformers' apply_chat_template()
// does. A template comes from a stranger: it sees its variables and nothing else, and steps, depth and output are
// bounded.
//
//   ASSIGN_OR_RETURN(chat, text::ChatTemplate::open("./qwen2.5-0.5b"));
//   conversation.add("user", "Hello");
//   ASSIGN_OR_RETURN(prompt, chat.render(conversation));     // to be encoded with SpecialTokens::Leave
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/text/chat/Conversation.h"

namespace headrace::text {

struct RenderOptions {
  bool addGenerationPrompt = true; // the beginning of the assistant's next message behind the last one
  int64_t unixSeconds = 0;         // for strftime_now, in local time; 0: now
};

struct TemplateLimits {
  int64_t steps = 10'000'000; // statements and expressions evaluated
  int64_t depth = 200;        // of expressions, blocks, macros and values
  int64_t bytes = 64 << 20;   // of the output, and of any value on the way
};

class ChatTemplate {
public:
  // Of a folder: chat_template.jinja, else tokenizer_config.json's chat_template (of several the one named "default",
  // and for conversations with tools the one named "tool_use", if there is one). bos_token, eos_token and the other
  // special tokens of tokenizer_config.json are its variables. NotFound names what was looked for; InvalidArgument
  // begins with the file (and the template's line).
  static absl::StatusOr<ChatTemplate> open(const std::string &folder);
  // The same with this file as the template.
  static absl::StatusOr<ChatTemplate> open(const std::string &folder, const std::string &file);
  // `path` begins messages; `variables` is a JSON object of texts such as bos_token, or empty.
  static absl::StatusOr<ChatTemplate> parse(std::string_view source, const std::string &path,
                                            std::string_view variables = "");

  ChatTemplate(ChatTemplate &&) noexcept;
  ChatTemplate &operator=(ChatTemplate &&) noexcept;
  ~ChatTemplate();

  // InvalidArgument, beginning with the file and the line: what the template raises, what it does with a value that has
  // no such thing, and what it does not end within `limits`.
  absl::StatusOr<std::string> render(const Conversation &conversation, const RenderOptions &options = {},
                                     const TemplateLimits &limits = {}) const;

  // The variable eos_token, which ends an assistant's message; empty: there is none.
  std::string endToken() const;
  // Whether a message's content may be a list of parts; where it may not, it is to be one text (Conversation::joined).
  bool takesParts() const;

  struct Parsed; // for .cpp files only

private:
  explicit ChatTemplate(std::unique_ptr<Parsed> parsed);
  std::unique_ptr<Parsed> parsed_;
};

} // namespace headrace::text
