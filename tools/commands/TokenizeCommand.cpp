// SPDX-License-Identifier: Apache-2.0
//
// tokenize and detokenize: what a model's tokenizer makes of a text, and of ids.
#include <cstdio>

#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "tools/commands/Commands.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/PromptIds.h"
#include "tools/commands/RunSetup.h"
#include "tools/commands/Terminal.h"
#include "tools/commands/TextModel.h"

namespace headrace::tools {
namespace {

using model::cat;
using Json = nlohmann::ordered_json;

std::string lineOf(const Json &json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

struct Input {
  std::string text, where;
};

absl::StatusOr<Input> inputOf(const TokenizeOptions &options, const char *what) {
  if (options.input && !options.file.empty())
    return badFlag("--file", options.file, cat(what, " is given beside it"), "one of them");
  if (options.input)
    return Input{*options.input, cat(kCommandLine, ": ", what)};
  const bool fromFile = !options.file.empty() && options.file != "-";
  ASSIGN_OR_RETURN(text, model::readInput(fromFile ? options.file : "-"));
  return Input{std::move(text), fromFile ? options.file : "standard input"};
}

absl::StatusOr<std::shared_ptr<const text::Tokenizer>> tokenizerOf(const std::string &folder) {
  if (!model::isDirectory(folder))
    return absl::NotFoundError(cat(folder, model::isRegularFile(folder) ? ": a file" : ": no such folder",
                                   ": expected a folder with tokenizer.json"));
  return text::Tokenizer::open(folder);
}

// The prompt of a conversation.
absl::StatusOr<Input> promptOf(const TokenizeOptions &options) {
  if (options.input || !options.file.empty())
    return badFlag("--messages", options.messages, "a text is given beside it", "one of them");
  ASSIGN_OR_RETURN(json, model::readInput(options.messages));
  RETURN_IF_ERROR(checkUtf8(json, options.messages, options.lossy));
  ASSIGN_OR_RETURN(conversation, text::Conversation::parse(json, options.messages));
  ASSIGN_OR_RETURN(chat, text::ChatTemplate::open(options.source));
  ASSIGN_OR_RETURN(prompt, render(chat, conversation));
  return Input{std::move(prompt), options.messages};
}

} // namespace

absl::Status tokenizeCommand(const TokenizeOptions &options) {
  const bool talk = !options.messages.empty();
  ASSIGN_OR_RETURN(tokenizer, tokenizerOf(options.source));
  ASSIGN_OR_RETURN(input, talk ? promptOf(options) : inputOf(options, "TEXT"));
  RETURN_IF_ERROR(checkUtf8(input.text, input.where, options.lossy));
  ASSIGN_OR_RETURN(ids, tokenizer->encode(input.text, options.noSpecial || talk ? text::SpecialTokens::Leave
                                                                                : text::SpecialTokens::Add));
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids)
    tokens.push_back(tokenizer->tokenOf(id));
  if (options.json) {
    print(lineOf({{"ids", ids}, {"tokens", tokens}}));
  } else if (options.pieces) {
    for (size_t i = 0; i < ids.size(); ++i)
      std::printf("%d\t%s\n", ids[i], model::escaped(tokens[i], 1000).c_str());
  } else {
    print(absl::StrJoin(ids, ",") + "\n");
  }
  return absl::OkStatus();
}

absl::Status detokenizeCommand(const TokenizeOptions &options) {
  ASSIGN_OR_RETURN(tokenizer, tokenizerOf(options.source));
  ASSIGN_OR_RETURN(input, inputOf(options, "IDS"));
  // "1,2,3", "1 2 3", "[1, 2, 3]"
  std::string list = absl::StrReplaceAll(input.text, {{"[", " "}, {"]", " "}, {",", " "}, {"\n", " "}, {"\t", " "}});
  list = absl::StrJoin(absl::StrSplit(list, ' ', absl::SkipEmpty()), ",");
  ASSIGN_OR_RETURN(ids, parseIds(list, input.where));
  for (const int32_t id : ids) // as models with more rows than tokens make them
    if (id >= tokenizer->size())
      warnOnce(cat(input.where, ": token id ", id, " is none of the tokenizer's, which are 0 to ",
                   tokenizer->size() - 1, ": it adds no text"));
  const std::string text = tokenizer->decode(ids, !options.noSpecial);
  print(options.json ? lineOf({{"text", text}}) : text + "\n");
  return absl::OkStatus();
}

} // namespace headrace::tools
