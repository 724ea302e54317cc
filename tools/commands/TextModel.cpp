// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/TextModel.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/base/Utf8.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/PromptLines.h"
#include "tools/commands/SamplingOf.h"
#include "tools/commands/Terminal.h"

namespace headrace::tools {
namespace {

using model::cat;

absl::Status checkVocabulary(const text::Tokenizer &tokenizer, const model::GenerationConfig &generation,
                             const std::string &folder, const model::ModelSpec &spec) {
  if (tokenizer.size() > spec.vocab)
    return absl::InvalidArgumentError(cat(folder, ": the tokenizer has ids up to ", tokenizer.size() - 1,
                                          ": expected ids below ", spec.vocab, ", the vocabulary of ", spec.name));
  for (const int32_t id : generation.endIds)
    if (id >= spec.vocab)
      return absl::InvalidArgumentError(cat(generation.endIdsFile, ": eos_token_id = ", id, ": expected ids below ",
                                            spec.vocab, ", the vocabulary of ", spec.name));
  return absl::OkStatus();
}

std::string nameOf(const std::string &file) { return file == "-" ? "standard input" : file; }

} // namespace

absl::StatusOr<std::string> render(const text::ChatTemplate &chat, const text::Conversation &conversation) {
  return chat.render(conversation.hasParts() && !chat.takesParts() ? conversation.joined() : conversation);
}

bool isText(const PromptFlags &flags) {
  return !flags.texts.empty() || !flags.textFiles.empty() || !flags.lists.empty() || !flags.messages.empty();
}

std::string textFlagOf(const TextFlags &flags) {
  return !flags.tokenizer.empty()           ? "--tokenizer"
         : !flags.chatTemplate.empty()      ? "--chat-template"
         : !flags.templateVariables.empty() ? "--chat-template-kwargs"
         : flags.system                     ? "--system"
         : !flags.stops.empty()             ? "--stop"
         : flags.special                    ? "--special"
         : flags.ignoreEos                  ? "--ignore-eos"
         : flags.lossy                      ? "--lossy"
         : flags.quiet                      ? "--quiet"
                                            : "";
}

absl::StatusOr<TextModel> TextModel::open(const TextFlags &flags, const std::string &folder,
                                          const model::ModelSpec &spec) {
  for (const std::string &stop : flags.stops)
    if (stop.empty() || model::invalidUtf8(stop) != std::string_view::npos)
      return badFlag("--stop", stop, "a text of at least one character, in UTF-8");
  if (!flags.tokenizer.empty() && !model::isDirectory(flags.tokenizer))
    return badFlag("--tokenizer", flags.tokenizer, "no such folder", "a folder with tokenizer.json");
  TextModel out;
  out.flags_ = &flags;
  out.folder_ = flags.tokenizer.empty() ? folder : flags.tokenizer;
  if (!model::isDirectory(out.folder_))
    return absl::InvalidArgumentError(cat(out.folder_.empty() ? spec.name : out.folder_,
                                          ": no folder with a tokenizer: expected a model's folder, or --tokenizer "
                                          "FOLDER"));
  ASSIGN_OR_RETURN(tokenizer, text::Tokenizer::open(out.folder_));
  out.tokenizer_ = std::move(tokenizer);
  // How the model is sampled is the model's, whoever has its tokenizer.
  ASSIGN_OR_RETURN(generation, model::readGenerationConfig(model::isDirectory(folder) ? folder : out.folder_));
  out.generation_ = std::move(generation);
  RETURN_IF_ERROR(checkVocabulary(*out.tokenizer_, out.generation_, out.folder_, spec));
  return out;
}

absl::Status checkUtf8(std::string &text, const std::string &where, bool lossy) {
  const size_t bad = model::invalidUtf8(text);
  if (bad == std::string_view::npos)
    return absl::OkStatus();
  if (!lossy)
    return absl::InvalidArgumentError(cat(where, ": byte ", static_cast<int>(static_cast<uint8_t>(text[bad])),
                                          " at offset ", bad,
                                          " is not UTF-8: expected UTF-8, or --lossy, which puts U+FFFD in its place"));
  text = model::lossyUtf8(text);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> TextModel::prompt(std::string_view text, const std::string &where) const {
  absl::StatusOr<std::vector<int32_t>> ids = tokenizer_->encode(text, text::SpecialTokens::Add);
  if (!ids.ok())
    return absl::Status(ids.status().code(), cat(where, ": ", ids.status().message()));
  if (ids->empty())
    return absl::InvalidArgumentError(
        cat(where, ": no tokens: expected a text of at least one (this tokenizer puts none in front)"));
  return ids;
}

absl::StatusOr<std::string> TextModel::checked(std::string text, const std::string &where) const {
  RETURN_IF_ERROR(checkUtf8(text, where, flags_->lossy));
  return text;
}

absl::Status TextModel::openTemplate() {
  const std::string &file = flags_->chatTemplate;
  ASSIGN_OR_RETURN(opened, file.empty() ? text::ChatTemplate::open(folder_) : text::ChatTemplate::open(folder_, file));
  template_.emplace(std::move(opened));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> TextModel::prompt(const text::Conversation &conversation) {
  if (!template_)
    RETURN_IF_ERROR(openTemplate());
  ASSIGN_OR_RETURN(rendered, render(*template_, conversation));
  ASSIGN_OR_RETURN(ids, tokenizer_->encode(rendered, text::SpecialTokens::Leave));
  if (ids.empty())
    return absl::InvalidArgumentError(
        cat(folder_, ": the chat template makes an empty text of the conversation: expected at least one token"));
  return ids;
}

absl::StatusOr<text::Conversation> TextModel::conversation(const std::string *messages,
                                                           const std::string &where) const {
  text::Conversation conversation;
  if (flags_->system) {
    ASSIGN_OR_RETURN(system, checked(*flags_->system, cat(kCommandLine, ": --system")));
    conversation.add("system", system);
  }
  if (messages != nullptr) {
    ASSIGN_OR_RETURN(json, checked(*messages, where));
    ASSIGN_OR_RETURN(parsed, text::Conversation::parse(json, where));
    if (flags_->system && parsed.messages() > 0 && parsed.role(0) == "system")
      return badUsage(cat("--system beside ", where, ", whose first message is one: expected one of them"));
    if (flags_->system)
      parsed.addFirst("system", *flags_->system);
    conversation = std::move(parsed);
  }
  if (!flags_->templateVariables.empty())
    if (const absl::Status status = conversation.setAll(flags_->templateVariables); !status.ok())
      return badFlag("--chat-template-kwargs", flags_->templateVariables, std::string(status.message()),
                     "a JSON object such as {\"enable_thinking\": false}");
  return conversation;
}

absl::StatusOr<std::vector<int32_t>> TextModel::promptOf(std::string text, const std::string &where) {
  RETURN_IF_ERROR(checkUtf8(text, where, flags_->lossy));
  if (!flags_->system)
    return prompt(text, where);
  ASSIGN_OR_RETURN(talk, conversation(nullptr, ""));
  talk.add("user", text);
  return prompt(talk);
}

absl::StatusOr<Prompts> TextModel::prompts(const PromptFlags &flags) {
  Prompts out;
  for (size_t i = 0; i < flags.texts.size(); ++i) {
    ASSIGN_OR_RETURN(ids, promptOf(flags.texts[i], flags.texts.size() == 1
                                                       ? cat(kCommandLine, ": --prompt")
                                                       : cat(kCommandLine, ": --prompt, number ", i + 1)));
    out.push_back(std::move(ids));
  }
  for (const std::string &file : flags.textFiles) {
    ASSIGN_OR_RETURN(text, model::readInput(file));
    if (text.ends_with('\n')) // as editors leave it
      text.pop_back();
    ASSIGN_OR_RETURN(ids, promptOf(std::move(text), nameOf(file)));
    out.push_back(std::move(ids));
  }
  for (const std::string &file : flags.lists) {
    ASSIGN_OR_RETURN(text, model::readInput(file));
    RETURN_IF_ERROR(checkUtf8(text, nameOf(file), flags_->lossy));
    ASSIGN_OR_RETURN(lines, promptLines(text, nameOf(file)));
    for (PromptLine &line : lines) {
      ASSIGN_OR_RETURN(ids, promptOf(std::move(line.text), line.where));
      out.push_back(std::move(ids));
    }
  }
  for (const std::string &file : flags.messages) {
    ASSIGN_OR_RETURN(text, model::readInput(file));
    ASSIGN_OR_RETURN(talk, conversation(&text, nameOf(file)));
    ASSIGN_OR_RETURN(ids, prompt(talk));
    out.push_back(std::move(ids));
  }
  return out;
}

std::vector<int32_t> TextModel::endIds() const {
  if (flags_->ignoreEos)
    return {};
  std::vector<int32_t> ids = generation_.endIds;
  // Some models end a message with a token that only their tokenizer's configuration names.
  if (template_)
    if (const std::optional<int32_t> end = tokenizer_->idOf(template_->endToken());
        end && std::find(ids.begin(), ids.end(), *end) == ids.end())
      ids.push_back(*end);
  return ids;
}

void TextModel::tell(const SamplingFlags &flags, const SamplingFlags &withDefaults,
                     absl::Span<const int32_t> endIds) const {
  if (flags_->quiet)
    return;
  if (const std::string taken = defaultsTaken(flags, withDefaults); !taken.empty())
    say(cat(taken, " (", generation_.file, ")"));
  if (!endIds.empty()) {
    std::vector<std::string> ends;
    for (const int32_t id : endIds) {
      const std::string token = tokenizer_->tokenOf(id);
      ends.push_back(token.empty() ? cat(id) : cat(id, " ", model::escaped(token, 40)));
    }
    std::vector<std::string> files;
    if (!generation_.endIds.empty())
      files.push_back(generation_.endIdsFile);
    if (endIds.size() > generation_.endIds.size())
      files.emplace_back("tokenizer_config.json's eos_token");
    say(cat("a reply ends at ", absl::StrJoin(ends, ", "), " (", absl::StrJoin(files, ", "), ")"));
  }
  if (!generation_.notSampled.empty() && !flags.temperature)
    say(cat(generation_.file, ": ", absl::StrJoin(generation_.notSampled, ", "),
            " not taken, as do_sample is not true: the likeliest tokens"));
  for (const std::string &key : generation_.notFollowed)
    say(cat("warning: ", generation_.file, ": ", key, " is not followed"));
}

} // namespace headrace::tools
