// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/TokenizerJson.h"

#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/tokenizer/ByteAlphabet.h"
#include "runtime/text/tokenizer/Section.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

using model::cat;
using nlohmann::json;

constexpr size_t kMostMerges = size_t{1} << 22;

const json kNull;

const json &memberOf(const Section &section, std::string_view key) {
  const json *found = section.reader.find(key);
  return found == nullptr ? kNull : *found;
}

absl::Status readMerges(Section &model, BpeTokenizerParts &parts) {
  const json *merges = model.reader.find("merges");
  if (merges == nullptr || !merges->is_array() || merges->size() > kMostMerges) {
    model.reader.refuse("merges", cat("a list of at most ", kMostMerges, " merges"));
    return model.reader.status();
  }
  parts.merges.reserve(merges->size());
  uint32_t rank = 0;
  for (size_t i = 0; i < merges->size(); ++i) {
    const json &merge = (*merges)[i];
    absl::Status status = absl::InvalidArgumentError("expected two tokens, \"a b\" or [\"a\", \"b\"]");
    if (merge.is_string()) {
      const std::string &line = merge.get_ref<const std::string &>();
      if (line.starts_with("#version"))
        continue;
      status = addMerge(parts.vocabulary, line, rank++, parts.merges);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      status = addMerge(parts.vocabulary, merge[0].get_ref<const std::string &>(),
                        merge[1].get_ref<const std::string &>(), rank++, parts.merges);
    }
    if (!status.ok())
      return absl::InvalidArgumentError(
          cat(model.path, ": model.merges[", i, "] = ", model::jsonText(merge), ": ", std::string(status.message())));
  }
  return absl::OkStatus();
}

// Whether every byte has its letter in the vocabulary, so that with bytes for words nothing is unknown.
bool hasAllBytes(const Vocabulary &vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    appendUtf8(byteLetter(static_cast<uint8_t>(byte)), letter);
    if (!vocabulary.find(letter))
      return false;
  }
  return true;
}

absl::Status readModel(const json &value, std::string_view path, BpeTokenizerParts &parts) {
  Section model(value, path, "model");
  if (model.reader.text("type", "BPE") != "BPE")
    return model.unsupportedType("BPE: other models are not supported");
  const json *dropout = model.reader.find("dropout");
  if (dropout != nullptr && *dropout != 0)
    model.reader.refuse("dropout", "null: dropout is not supported");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const json *affix = model.reader.find(key);
        affix != nullptr && !(affix->is_string() && affix->get_ref<const std::string &>().empty()))
      model.reader.refuse(key, "null or \"\": such tokens are not supported");
  parts.options.fuseUnknown = model.reader.boolean("fuse_unk", false);
  parts.options.byteFallback = model.reader.boolean("byte_fallback", false);
  parts.options.ignoreMerges = model.reader.boolean("ignore_merges", false);
  RETURN_IF_ERROR(model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                              "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  ASSIGN_OR_RETURN(vocabulary, readVocabulary(memberOf(model, "vocab"), path, "model.vocab"));
  parts.vocabulary = std::move(vocabulary);
  if (model.reader.find("unk_token") != nullptr) {
    parts.options.unknown = parts.vocabulary.find(model.reader.text("unk_token", std::nullopt));
    if (!parts.options.unknown && !(parts.preTokenizer.emitsBytes() && hasAllBytes(parts.vocabulary)))
      model.reader.refuse("unk_token", "a token of model.vocab");
    RETURN_IF_ERROR(model.reader.status());
  }
  return readMerges(model, parts);
}

absl::Status readAddedToken(const json &value, std::string_view path, std::string_view key, int64_t &nextId,
                            BpeTokenizerParts &parts) {
  Section section(value, path, key);
  model::JsonReader &reader = section.reader;
  AddedToken token;
  token.content = reader.text("content", std::nullopt);
  token.id = static_cast<int32_t>(reader.integer("id", std::nullopt, 0, kMostIds - 1));
  token.singleWord = reader.boolean("single_word", false);
  token.lstrip = reader.boolean("lstrip", false);
  token.rstrip = reader.boolean("rstrip", false);
  token.special = reader.boolean("special", false);
  token.normalized = reader.boolean("normalized", !token.special);
  RETURN_IF_ERROR(section.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
  if (token.content.empty()) // as the package does
    return absl::OkStatus();
  if (token.content.size() > kLongestAddedToken)
    reader.refuse("content", cat("at most ", kLongestAddedToken, " bytes"));
  const std::optional<int32_t> inModel = parts.vocabulary.find(token.content);
  const int64_t expected = inModel ? *inModel : nextId;
  if (token.id != expected)
    reader.refuse("id", inModel ? cat(expected, ", the token's in model.vocab")
                                : cat(expected, ", the next one behind model.vocab and the added tokens before"));
  nextId += inModel ? 0 : 1;
  if (!inModel && parts.vocabulary.has(token.id))
    reader.refuse("id", "one that no other token has");
  RETURN_IF_ERROR(reader.status());
  parts.added.push_back(std::move(token));
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<Vocabulary> readVocabulary(const json &value, std::string_view path, std::string_view key) {
  Vocabulary vocabulary;
  if (!value.is_object())
    return absl::InvalidArgumentError(cat(path, ": ", key, key.empty() ? "" : " = ", model::jsonText(value),
                                          ": expected an object of tokens and ids"));
  for (const auto &[token, id] : value.items()) {
    const bool valid = id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(kMostIds);
    if (!valid || !vocabulary.add(token, id.get<int32_t>()))
      return absl::InvalidArgumentError(cat(path, ": ", key, key.empty() ? "" : ".", model::escaped(token, 80), " = ",
                                            model::jsonText(id), ": expected an id from 0 to ", kMostIds - 1,
                                            " that no other token has"));
  }
  return vocabulary;
}

absl::Status addMerge(const Vocabulary &vocabulary, std::string_view left, std::string_view right, uint32_t rank,
                      MergeTable &merges) {
  const std::string both = cat(left, right);
  const std::optional<int32_t> ids[] = {vocabulary.find(left), vocabulary.find(right), vocabulary.find(both)};
  const std::string_view texts[] = {left, right, both};
  for (size_t i = 0; i < 3; ++i)
    if (!ids[i] || texts[i].empty())
      return absl::InvalidArgumentError(cat(model::escaped(texts[i], 80), " is no token of the vocabulary"));
  merges.set(*ids[0], *ids[1], {rank, *ids[2]});
  return absl::OkStatus();
}

absl::Status addMerge(const Vocabulary &vocabulary, std::string_view line, uint32_t rank, MergeTable &merges) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos)
    return absl::InvalidArgumentError("expected two tokens with a space between them");
  return addMerge(vocabulary, line.substr(0, space), line.substr(space + 1), rank, merges);
}

absl::StatusOr<BpeTokenizerParts> readTokenizerJson(const json &file, std::string_view path) {
  Section section(file, path, "");
  if (section.reader.text("version", "1.0") != "1.0")
    section.reader.refuse("version", "1.0");
  RETURN_IF_ERROR(section.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                                "post_processor", "decoder", "model"}));
  BpeTokenizerParts parts;
  ASSIGN_OR_RETURN(normalizer, Normalizer::parse(memberOf(section, "normalizer"), path));
  parts.normalizer = std::move(normalizer);
  ASSIGN_OR_RETURN(preTokenizer, PreTokenizer::parse(memberOf(section, "pre_tokenizer"), path));
  parts.preTokenizer = std::move(preTokenizer);
  ASSIGN_OR_RETURN(postProcessor, PostProcessor::parse(memberOf(section, "post_processor"), path));
  parts.postProcessor = std::move(postProcessor);
  ASSIGN_OR_RETURN(decoder, Decoder::parse(memberOf(section, "decoder"), path));
  parts.decoder = std::move(decoder);
  RETURN_IF_ERROR(readModel(memberOf(section, "model"), path, parts));
  const json &added = memberOf(section, "added_tokens");
  if (!added.is_null() && (!added.is_array() || added.size() > static_cast<size_t>(kMostIds))) {
    section.reader.refuse("added_tokens", "a list");
    return section.reader.status();
  }
  int64_t nextId = parts.vocabulary.count();
  for (size_t i = 0; i < added.size(); ++i)
    RETURN_IF_ERROR(readAddedToken(added[i], path, cat("added_tokens[", i, "]"), nextId, parts));
  return parts;
}

} // namespace headrace::text
