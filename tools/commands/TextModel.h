// SPDX-License-Identifier: Apache-2.0
//
// What a model's folder has for people beside weights: a tokenizer, a chat template, how it likes to be sampled; and
// prompts made of text with them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/model/GenerationConfig.h"
#include "runtime/model/ModelSpec.h"
#include "runtime/text/chat/ChatTemplate.h"
#include "runtime/text/tokenizer/Tokenizer.h"
#include "tools/commands/Commands.h"
#include "tools/commands/PromptIds.h"

namespace headrace::tools {

// Refuses what is not UTF-8, with its offset, or puts U+FFFD in its place.
absl::Status checkUtf8(std::string &text, const std::string &where, bool lossy);

// The prompt of a conversation; parts of contents as one text where the template does not take parts.
absl::StatusOr<std::string> render(const text::ChatTemplate &chat, const text::Conversation &conversation);

// Whether prompts are text, as flags say it.
bool isText(const PromptFlags &flags);
// Of flags that need text, the first that is given; empty: none.
std::string textFlagOf(const TextFlags &flags);

class TextModel {
public:
  // The tokenizer's folder is --tokenizer, else the model's, `folder`; a shape has none. Refused: one whose ids, or
  // whose end ids, the model's vocabulary does not have. The chat template is opened at the first prompt() of a
  // conversation.
  static absl::StatusOr<TextModel> open(const TextFlags &flags, const std::string &folder,
                                        const model::ModelSpec &spec);

  const text::Tokenizer &tokenizer() const { return *tokenizer_; }
  const model::GenerationConfig &generation() const { return generation_; }

  // `where` begins messages: "command line: --prompt 2", a file.
  absl::StatusOr<std::vector<int32_t>> prompt(std::string_view text, const std::string &where) const;
  absl::StatusOr<std::vector<int32_t>> prompt(const text::Conversation &conversation);
  absl::Status openTemplate(); // which prompt() does otherwise
  // A text as the flags have it: UTF-8, or made so.
  absl::StatusOr<std::string> checked(std::string text, const std::string &where) const;
  // A conversation with --system in front and --chat-template-kwargs; `messages` may be null, else it is JSON.
  absl::StatusOr<text::Conversation> conversation(const std::string *messages, const std::string &where) const;

  // All that the flags ask for, in their order: texts, files of them, conversations. With --system texts are the first
  // message of a conversation.
  absl::StatusOr<Prompts> prompts(const PromptFlags &flags);

  std::vector<int32_t> endIds() const; // none with --ignore-eos
  // What is said before anything runs: sampling and end ids that come from the model's files.
  void tell(const SamplingFlags &flags, const SamplingFlags &withDefaults, absl::Span<const int32_t> ends) const;

private:
  absl::StatusOr<std::vector<int32_t>> promptOf(std::string text, const std::string &where);

  const TextFlags *flags_ = nullptr;
  std::string folder_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> template_;
  model::GenerationConfig generation_;
};

} // namespace headrace::tools
