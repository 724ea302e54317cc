// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/ChatTemplate.h"

#include <ctime>
#include <map>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Utf8.h"
#include "runtime/text/chat/ConversationData.h"
#include "runtime/text/chat/Evaluate.h"
#include "runtime/text/chat/FromJson.h"
#include "runtime/text/chat/Lexer.h"
#include "runtime/text/chat/PyText.h"
#include "runtime/text/chat/TokenizerConfig.h"

namespace headrace::text {

using model::cat;

namespace {

constexpr size_t kLargestSource = size_t{4} << 20;
constexpr size_t kLongestMessage = 1000;

absl::Status refusedAt(const std::string &path, int line, std::string_view message) {
  return absl::InvalidArgumentError(cat(path, ":", line, ": ", jinja::printable(message, kLongestMessage)));
}

} // namespace

struct ChatTemplate::Parsed {
  std::string path;
  jinja::Ast ast;
  std::map<std::string, int, std::less<>> names; // of the ast
  std::vector<std::pair<std::string, std::string>> variables;
  std::unique_ptr<Parsed> withTools; // in its place, where a conversation has tools; may be null
};

ChatTemplate::ChatTemplate(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
ChatTemplate::ChatTemplate(ChatTemplate &&) noexcept = default;
ChatTemplate &ChatTemplate::operator=(ChatTemplate &&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<ChatTemplate> ChatTemplate::open(const std::string &folder) { return open(folder, ""); }

absl::StatusOr<ChatTemplate> ChatTemplate::open(const std::string &folder, const std::string &file) {
  ASSIGN_OR_RETURN(files, readChatFiles(folder, file));
  ASSIGN_OR_RETURN(made, parse(files.source, files.path));
  made.parsed_->variables = files.specialTokens;
  if (!files.toolSource.empty()) {
    ASSIGN_OR_RETURN(withTools, parse(files.toolSource, files.path));
    made.parsed_->withTools = std::move(withTools.parsed_);
    made.parsed_->withTools->variables = std::move(files.specialTokens);
  }
  return made;
}

absl::StatusOr<ChatTemplate> ChatTemplate::parse(std::string_view source, const std::string &path,
                                                 std::string_view variables) {
  auto parsed = std::make_unique<Parsed>();
  parsed->path = path;
  if (!variables.empty()) {
    ASSIGN_OR_RETURN(tokens, specialTokens(variables, path));
    parsed->variables = std::move(tokens);
  }
  if (source.size() > kLargestSource)
    return absl::InvalidArgumentError(
        cat(path, ": a template of ", source.size(), " bytes: expected at most ", kLargestSource));
  if (const size_t offset = model::invalidUtf8(source); offset != std::string_view::npos)
    return absl::InvalidArgumentError(cat(path, ": the template is not UTF-8 at byte ", offset));
  try {
    parsed->ast = jinja::parse(source);
  } catch (const jinja::SyntaxError &error) {
    return refusedAt(path, error.line, error.message);
  }
  for (size_t i = 0; i < parsed->ast.names.size(); ++i)
    parsed->names.emplace(parsed->ast.names[i].text(), static_cast<int>(i));
  return ChatTemplate(std::move(parsed));
}

absl::StatusOr<std::string> ChatTemplate::render(const Conversation &conversation, const RenderOptions &options,
                                                 const TemplateLimits &limits) const {
  using jinja::Value;
  const ConversationData &data = conversation.data();
  const Parsed &parsed = parsed_->withTools && !data.tools.is_null() ? *parsed_->withTools : *parsed_;
  jinja::Heap heap(limits);
  jinja::Machine machine(parsed.ast, heap,
                         options.unixSeconds != 0 ? options.unixSeconds : static_cast<int64_t>(std::time(nullptr)));
  // What the template does not name it does not get.
  const auto set = [&](std::string_view name, const auto &make) {
    if (const auto found = parsed.names.find(name); found != parsed.names.end())
      machine.set(found->second, make());
  };
  try {
    for (const auto &[name, text] : parsed.variables)
      set(name, [&, &text = text] { return jinja::makeText(heap, text); });
    set("documents", [] { return Value::none(); });
    for (const auto &[name, value] : data.variables.items())
      set(name, [&, &name = name, &value = value] { return jinja::fromJson(heap, value, name); });
    set("messages", [&] { return jinja::messagesFromJson(heap, data.messages); });
    set("tools", [&] { return jinja::fromJson(heap, data.tools, "tools"); });
    set("add_generation_prompt", [&] { return Value::boolean(options.addGenerationPrompt); });
    return machine.run();
  } catch (const jinja::TemplateError &error) {
    return refusedAt(parsed.path, machine.line(), error.message);
  }
}

std::string ChatTemplate::endToken() const {
  for (const auto &[name, text] : parsed_->variables)
    if (name == "eos_token")
      return text;
  return "";
}

// By what it does with one: a template that takes texts raises, or writes the list as Python does.
bool ChatTemplate::takesParts() const {
  constexpr const char *kText = "headrace probe";
  const auto probe =
      Conversation::parse(cat(R"([{"role": "user", "content": [{"type": "text", "text": ")", kText, R"("}]}])"), "");
  const absl::StatusOr<std::string> made = probe.ok() ? render(*probe) : probe.status();
  if (!made.ok())
    return false;
  const size_t at = made->find(kText);
  return at != std::string::npos && made->find(cat("'", kText, "'")) == std::string::npos &&
         made->find(cat("\"", kText, "\"")) == std::string::npos;
}

} // namespace headrace::text
