// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/chat/TokenizerConfig.h"

#include <algorithm>
#include <optional>

#include "runtime/base/FileIo.h"
#include "runtime/base/JsonReader.h"
#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"

namespace headrace::text {
namespace {

using model::cat;
using nlohmann::json;
using Tokens = std::vector<std::pair<std::string, std::string>>;

constexpr const char *kTemplateFile = "chat_template.jinja", *kConfigFile = "tokenizer_config.json",
                     *kMapFile = "special_tokens_map.json";

// A file that need not be there.
absl::StatusOr<std::optional<std::string>> readIfThere(const std::string &path) {
  if (!model::isThere(path))
    return std::optional<std::string>();
  ASSIGN_OR_RETURN(text, model::readTextFile(path));
  RETURN_IF_ERROR(model::refuseLfsPointer(text, path));
  return std::optional<std::string>(std::move(text));
}

// A JSON object; an empty one where the file is not there.
absl::StatusOr<json> readObject(const std::string &path) {
  ASSIGN_OR_RETURN(text, readIfThere(path));
  if (!text)
    return json::object();
  ASSIGN_OR_RETURN(document, model::parseJson(*text, path));
  if (!document.is_object())
    return absl::InvalidArgumentError(cat(path, ": expected an object, found ", model::jsonText(document)));
  return document;
}

void setToken(Tokens &tokens, const std::string &name, const json &value) {
  const json *content = &value;
  if (value.is_object()) {
    const auto found = value.find("content");
    content = found == value.end() ? nullptr : &*found;
  }
  if (!content || !content->is_string())
    return;
  const auto have = std::find_if(tokens.begin(), tokens.end(), [&](const auto &token) { return token.first == name; });
  if (have != tokens.end())
    have->second = content->get<std::string>();
  else
    tokens.emplace_back(name, content->get<std::string>());
}

void addTokens(Tokens &tokens, const json &object) {
  constexpr std::string_view kEnding = "_token";
  for (const auto &[key, value] : object.items()) {
    const bool named =
        key.size() > kEnding.size() && std::string_view(key).substr(key.size() - kEnding.size()) == kEnding;
    if (named)
      setToken(tokens, key, value);
    else if (key == "extra_special_tokens" && value.is_object())
      for (const auto &[name, token] : value.items())
        setToken(tokens, name, token);
  }
}

// tokenizer_config.json's chat_template: the text, or a list of named ones.
// The one named "default" is the source, one named "tool_use" that of conversations with tools.
absl::Status readTemplate(const json &value, const std::string &path, ChatFiles &files) {
  if (value.is_string()) {
    files.source = value.get<std::string>();
    return absl::OkStatus();
  }
  if (!value.is_array())
    return absl::InvalidArgumentError(
        cat(path, ": chat_template = ", model::jsonText(value), ": expected a string or a list of named templates"));
  std::string names;
  bool found = false;
  for (const json &entry : value) {
    const auto name = entry.is_object() ? entry.find("name") : entry.end();
    const auto source = entry.is_object() ? entry.find("template") : entry.end();
    if (name == entry.end() || !name->is_string() || source == entry.end() || !source->is_string())
      return absl::InvalidArgumentError(
          cat(path, ": chat_template: expected objects with a name and a template, found ", model::jsonText(entry)));
    if (*name == "default") {
      files.source = source->get<std::string>();
      found = true;
    }
    if (*name == "tool_use")
      files.toolSource = source->get<std::string>();
    names += (names.empty() ? "" : ", ") + model::jsonText(*name);
  }
  if (found)
    return absl::OkStatus();
  return absl::InvalidArgumentError(cat(path, ": chat_template has ",
                                        names.empty() ? "no templates" : names.substr(0, 400),
                                        ": expected one named \"default\""));
}

} // namespace

absl::StatusOr<Tokens> specialTokens(std::string_view text, const std::string &path) {
  ASSIGN_OR_RETURN(document, model::parseJson(text, path));
  if (!document.is_object())
    return absl::InvalidArgumentError(cat(path, ": expected an object, found ", model::jsonText(document)));
  Tokens tokens;
  addTokens(tokens, document);
  return tokens;
}

absl::StatusOr<ChatFiles> readChatFiles(const std::string &folder, const std::string &templateFile) {
  ChatFiles files;
  const std::string configPath = model::joinPath(folder, kConfigFile);
  ASSIGN_OR_RETURN(config, readObject(configPath));
  files.path = templateFile.empty() ? model::joinPath(folder, kTemplateFile) : templateFile;
  ASSIGN_OR_RETURN(source, readIfThere(files.path));
  const auto configured = config.find("chat_template");
  if (!source && !templateFile.empty())
    return absl::NotFoundError(cat(templateFile, ": no such file"));
  if (source) {
    files.source = *std::move(source);
  } else if (configured != config.end() && !configured->is_null()) {
    RETURN_IF_ERROR(readTemplate(*configured, configPath, files));
    files.path = configPath + ": chat_template";
  } else
    return absl::NotFoundError(
        cat(folder, ": no chat template: expected ", kTemplateFile, ", or chat_template in ", kConfigFile));
  addTokens(files.specialTokens, config);
  if (!config.contains("added_tokens_decoder")) { // with it, transformers reads the older file no more
    ASSIGN_OR_RETURN(map, readObject(model::joinPath(folder, kMapFile)));
    addTokens(files.specialTokens, map);
  }
  return files;
}

} // namespace headrace::text
