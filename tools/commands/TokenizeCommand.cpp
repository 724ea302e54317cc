// SPDX-License-Identifier: Apache-2.0
//
// tokenize and detokenize: what a model's tokenizer makes of a text, and of ids.
#include <cstdio>
#include <iostream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "absl/strings/str_join.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "tools/commands/Commands.h"
#include "tools/commands/InputErrors.h"
#include "tools/commands/PromptIds.h"
#include "tools/commands/TextModel.h"

namespace headrace::tools {
namespace {

using model::cat;
using Json = nlohmann::ordered_json;

struct Input {
  std::string text, where;
};

absl::StatusOr<Input> inputOf(const TokenizeOptions &options, const char *what) {
  if (options.input && !options.file.empty())
    return badFlag("--file", options.file, cat(what, " is given beside it"), "one of them");
  if (options.input)
    return Input{*options.input, cat(kCommandLine, ": ", what)};
  if (!options.file.empty() && options.file != "-") {
    ASSIGN_OR_RETURN(text, model::readTextFile(options.file));
    return Input{std::move(text), options.file};
  }
  return Input{{std::istreambuf_iterator<char>(std::cin), {}}, "standard input"};
}

absl::StatusOr<std::shared_ptr<const text::Tokenizer>> tokenizerOf(const std::string &folder) {
  if (!model::isDirectory(folder))
    return absl::NotFoundError(cat(folder, ": no such folder: expected one with tokenizer.json"));
  return text::Tokenizer::open(folder);
}

} // namespace

absl::Status tokenizeCommand(const TokenizeOptions &options) {
  ASSIGN_OR_RETURN(tokenizer, tokenizerOf(options.source));
  ASSIGN_OR_RETURN(input, inputOf(options, "TEXT"));
  RETURN_IF_ERROR(checkUtf8(input.text, input.where, options.lossy));
  ASSIGN_OR_RETURN(
      ids, tokenizer->encode(input.text, options.noSpecial ? text::SpecialTokens::Leave : text::SpecialTokens::Add));
  std::vector<std::string> tokens;
  for (const int32_t id : ids)
    tokens.push_back(tokenizer->tokenOf(id));
  if (options.json) {
    std::puts(Json{{"ids", ids}, {"tokens", tokens}}.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  } else if (options.pieces) {
    for (size_t i = 0; i < ids.size(); ++i)
      std::printf("%d\t%s\n", ids[i], model::escaped(tokens[i], 1000).c_str());
  } else {
    std::puts(absl::StrJoin(ids, ",").c_str());
  }
  return absl::OkStatus();
}

absl::Status detokenizeCommand(const TokenizeOptions &options) {
  ASSIGN_OR_RETURN(tokenizer, tokenizerOf(options.source));
  ASSIGN_OR_RETURN(input, inputOf(options, "IDS"));
  ASSIGN_OR_RETURN(ids, parseIds(input.text, input.where));
  for (const int32_t id : ids)
    if (id >= tokenizer->size())
      return absl::InvalidArgumentError(
          cat(input.where, ": token id ", id, ": expected 0 to ", tokenizer->size() - 1, ", the tokenizer's"));
  const std::string text = tokenizer->decode(ids, !options.noSpecial);
  std::puts(options.json ? Json{{"text", text}}.dump(-1, ' ', false, Json::error_handler_t::replace).c_str()
                         : text.c_str());
  return absl::OkStatus();
}

} // namespace headrace::tools
