// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/TokenizerConfig.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "runtime/base/FileIo.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::text {
namespace {

using model::cat;
using nlohmann::json;

constexpr std::string_view kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
constexpr uint64_t kLargestFile = uint64_t{16} << 20; // bytes

// A file's JSON object; an empty one where there is no such file.
absl::StatusOr<json> readObject(const std::string &path) {
  if (!model::isThere(path))
    return json::object();
  ASSIGN_OR_RETURN(text, model::readTextFile(path, kLargestFile));
  ASSIGN_OR_RETURN(value, model::parseJson(text, path));
  if (!value.is_object())
    return absl::InvalidArgumentError(cat(path, ": expected an object"));
  return value;
}

// "<s>", or an object with its content and flags.
absl::StatusOr<AddedToken> readToken(const json &value, std::string_view path, std::string_view key) {
  AddedToken token;
  if (value.is_string()) {
    token.content = value.get<std::string>();
    token.special = true;
  } else {
    model::JsonReader reader(value, path, cat(key, "."));
    token.content = reader.text("content", std::nullopt);
    token.singleWord = reader.boolean("single_word", false);
    token.lstrip = reader.boolean("lstrip", false);
    token.rstrip = reader.boolean("rstrip", false);
    token.special = reader.boolean("special", false);
    token.normalized = reader.boolean("normalized", !token.special);
    RETURN_IF_ERROR(reader.status());
  }
  if (token.content.size() > kLongestAddedToken)
    return absl::InvalidArgumentError(
        cat(path, ": ", key, ": expected a token of at most ", kLongestAddedToken, " bytes"));
  return token;
}

absl::Status readNamed(const json &file, const std::string &path, TokenizerConfig &config) {
  for (const std::string_view name : kNames) {
    const auto found = file.find(name);
    if (found == file.end())
      continue;
    AddedToken token;
    if (!found->is_null()) {
      ASSIGN_OR_RETURN(read, readToken(*found, path, name));
      token = std::move(read);
      token.special = true;
    }
    const auto same =
        std::find_if(config.named.begin(), config.named.end(), [&](const auto &n) { return n.name == name; });
    if (same != config.named.end())
      same->token = std::move(token);
    else
      config.named.push_back({std::string(name), std::move(token)});
  }
  for (const std::string_view key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto found = file.find(key);
    if (found == file.end() || !found->is_array())
      continue;
    config.extra.clear();
    for (size_t i = 0; i < found->size(); ++i) {
      ASSIGN_OR_RETURN(token, readToken((*found)[i], path, cat(key, "[", i, "]")));
      token.special = true;
      config.extra.push_back(std::move(token));
    }
  }
  return absl::OkStatus();
}

bool isId(int64_t id) { return id >= 0 && id < kMostIds; }

// {"2": {"content": "</s>", ...}, ...}
absl::Status readAddedDecoder(const json &tokens, const std::string &path, std::map<int32_t, AddedToken> &added) {
  if (!tokens.is_object())
    return absl::InvalidArgumentError(cat(path, ": added_tokens_decoder: expected an object"));
  for (const auto &[number, value] : tokens.items()) {
    const std::string key = cat("added_tokens_decoder.", model::escaped(number, 40));
    int64_t id = -1;
    if (!absl::SimpleAtoi(number, &id) || !isId(id))
      return absl::InvalidArgumentError(cat(path, ": ", key, ": expected an id from 0 to ", kMostIds - 1));
    ASSIGN_OR_RETURN(token, readToken(value, path, key));
    token.id = static_cast<int32_t>(id);
    added[token.id] = std::move(token);
  }
  return absl::OkStatus();
}

// {"<new>": 50265, ...}
absl::Status readAddedFile(const json &tokens, const std::string &path, const TokenizerConfig &config,
                           std::map<int32_t, AddedToken> &added) {
  for (const auto &[content, number] : tokens.items()) {
    if (!number.is_number_unsigned() || !isId(number.get<int64_t>()) || content.size() > kLongestAddedToken)
      return absl::InvalidArgumentError(cat(path, ": ", model::escaped(content, 80), " = ", model::jsonText(number),
                                            ": expected a token's id from 0 to ", kMostIds - 1));
    const auto names = [&content = content](const AddedToken &token) { return token.content == content; };
    AddedToken token;
    token.id = number.get<int32_t>();
    token.content = content;
    token.special =
        std::any_of(config.extra.begin(), config.extra.end(), names) ||
        std::any_of(config.named.begin(), config.named.end(), [&](const auto &n) { return names(n.token); });
    token.normalized = !token.special;
    added[token.id] = std::move(token);
  }
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<TokenizerConfig> TokenizerConfig::open(const std::string &folder) {
  TokenizerConfig config;
  const std::string path = model::joinPath(folder, "tokenizer_config.json");
  ASSIGN_OR_RETURN(file, readObject(path));
  model::JsonReader reader(file, path);
  for (const auto &[key, value] : {std::pair("add_bos_token", &config.addBos), {"add_eos_token", &config.addEos}})
    if (reader.find(key) != nullptr)
      *value = reader.boolean(key, false);
  if (reader.find("add_prefix_space") != nullptr)
    config.addPrefixSpace = reader.boolean("add_prefix_space", false);
  RETURN_IF_ERROR(reader.status());
  RETURN_IF_ERROR(readNamed(file, path, config));
  std::map<int32_t, AddedToken> added;
  if (const json *decoder = reader.find("added_tokens_decoder")) {
    RETURN_IF_ERROR(readAddedDecoder(*decoder, path, added));
  } else { // as older folders have it
    const std::string mapPath = model::joinPath(folder, "special_tokens_map.json");
    ASSIGN_OR_RETURN(map, readObject(mapPath));
    RETURN_IF_ERROR(readNamed(map, mapPath, config));
    const std::string addedPath = model::joinPath(folder, "added_tokens.json");
    ASSIGN_OR_RETURN(addedFile, readObject(addedPath));
    RETURN_IF_ERROR(readAddedFile(addedFile, addedPath, config, added));
  }
  for (auto &[id, token] : added)
    config.added.push_back(std::move(token));
  return config;
}

const AddedToken *TokenizerConfig::find(std::string_view name) const {
  for (const Named &each : named)
    if (each.name == name)
      return &each.token;
  return nullptr;
}

absl::StatusOr<std::vector<AddedToken>> TokenizerConfig::number(const Vocabulary &vocabulary,
                                                                const std::string &folder) const {
  std::vector<AddedToken> tokens;
  int64_t next = vocabulary.count();
  absl::Status status;
  const auto take = [&](const AddedToken &token, bool special) {
    if (token.content.empty() || !status.ok())
      return;
    const auto same =
        std::find_if(tokens.begin(), tokens.end(), [&](const auto &t) { return t.content == token.content; });
    if (same != tokens.end()) {
      same->special = same->special || special;
      return;
    }
    const std::optional<int32_t> known = vocabulary.find(token.content);
    const int64_t id = known ? *known : next++;
    if ((token.id >= 0 && token.id != id) || (!known && vocabulary.has(static_cast<int32_t>(id))) || !isId(id))
      status =
          absl::InvalidArgumentError(cat(folder, ": the added token ", model::escaped(token.content, 80), " has id ",
                                         token.id, ": expected ", id, known ? ", the vocabulary's" : ""));
    tokens.push_back(token);
    tokens.back().id = static_cast<int32_t>(id);
    tokens.back().special = token.special || special;
  };
  for (const AddedToken &token : added)
    take(token, false);
  for (const std::string_view name : kNames)
    if (const AddedToken *token = find(name))
      take(*token, true);
  for (const AddedToken &token : extra)
    take(token, true);
  RETURN_IF_ERROR(status);
  return tokens;
}

} // namespace headrace::text
