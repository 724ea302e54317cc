// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Tokenizer.h"

#include <utility>

#include "runtime/base/FileIo.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/tokenizer/OtherFiles.h"
#include "runtime/text/tokenizer/TokenizerJson.h"

namespace headrace::text {
namespace {

constexpr uint64_t kLargestFile = uint64_t{128} << 20; // bytes

} // namespace

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::open(const std::string &folder) {
  const std::string path = model::joinPath(folder, "tokenizer.json");
  const auto has = [&](const char *name) { return model::isThere(model::joinPath(folder, name)); };
  if (has("tokenizer.json")) {
    ASSIGN_OR_RETURN(text, model::readTextFile(path, kLargestFile));
    return parse(text, path);
  }
  if (has("vocab.json") && has("merges.txt")) {
    ASSIGN_OR_RETURN(parts, readGpt2Files(folder));
    return BpeTokenizer::make(std::move(parts), folder);
  }
  if (has("tokenizer.model")) {
    ASSIGN_OR_RETURN(parts, readSentencePieceFile(folder));
    return BpeTokenizer::make(std::move(parts), model::joinPath(folder, "tokenizer.model"));
  }
  return absl::NotFoundError(model::cat(
      folder, ": expected a tokenizer in it: tokenizer.json, vocab.json with merges.txt, or tokenizer.model"));
}

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view json, const std::string &path) {
  ASSIGN_OR_RETURN(file, model::parseJson(json, path));
  ASSIGN_OR_RETURN(parts, readTokenizerJson(file, path));
  return BpeTokenizer::make(std::move(parts), path);
}

} // namespace headrace::text
