// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "runtime/base/FileIo.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/tokenizer/OtherFiles.h"
#include "runtime/text/tokenizer/TokenizerJson.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

using model::cat;

// Lines of two tokens, after "#version: ...".
absl::Status readMerges(const std::string &path, BpeTokenizerParts &parts) {
  ASSIGN_OR_RETURN(text, model::readTextFile(path));
  RETURN_IF_ERROR(model::refuseLfsPointer(text, path));
  if (const size_t good = utf8Prefix(text); good != text.size())
    return absl::InvalidArgumentError(cat(path, ": expected UTF-8: byte ", good, " is none"));
  uint32_t rank = 0;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (line.starts_with("#version"))
      continue;
    const absl::Status status = addMerge(parts.vocabulary, line, rank++, parts.merges);
    if (!status.ok())
      return absl::InvalidArgumentError(
          cat(path, ": line ", number, ", ", model::escaped(line, 80), ": ", std::string(status.message())));
  }
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<BpeTokenizerParts> readGpt2Files(const std::string &folder) {
  BpeTokenizerParts parts;
  const std::string vocabularyPath = model::joinPath(folder, "vocab.json");
  ASSIGN_OR_RETURN(text, model::readTextFile(vocabularyPath));
  ASSIGN_OR_RETURN(json, model::parseJson(text, vocabularyPath));
  ASSIGN_OR_RETURN(vocabulary, readVocabulary(json, vocabularyPath, ""));
  parts.vocabulary = std::move(vocabulary);
  if (json.empty())
    return absl::InvalidArgumentError(model::cat(vocabularyPath, ": no tokens: expected at least one"));
  RETURN_IF_ERROR(readMerges(model::joinPath(folder, "merges.txt"), parts));
  ASSIGN_OR_RETURN(config, TokenizerConfig::open(folder));
  for (const std::string_view name : {"bos_token", "eos_token", "unk_token"})
    if (config.find(name) == nullptr) {
      TokenizerConfig::Named named{std::string(name), {}};
      named.token.content = "<|endoftext|>";
      config.named.push_back(std::move(named));
    }
  ASSIGN_OR_RETURN(added, config.number(parts.vocabulary, folder));
  parts.added = std::move(added);
  const auto idOf = [&](std::string_view name) {
    for (const AddedToken &token : parts.added)
      if (token.content == config.find(name)->content)
        return token.id;
    return PostProcessor::kText; // null: none
  };
  if (const int32_t bos = idOf("bos_token"); config.addBos.value_or(false) && bos != PostProcessor::kText)
    parts.postProcessor.ids.insert(parts.postProcessor.ids.begin(), bos);
  if (const int32_t eos = idOf("eos_token"); config.addEos.value_or(false) && eos != PostProcessor::kText)
    parts.postProcessor.ids.push_back(eos);
  parts.preTokenizer = PreTokenizer::byteLevel(config.addPrefixSpace);
  parts.decoder = Decoder::byteLevel();
  return parts;
}

} // namespace headrace::text
