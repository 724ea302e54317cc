// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/PostProcessor.h"

#include <optional>
#include <string>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/tokenizer/Section.h"
#include "runtime/text/tokenizer/Vocabulary.h"

namespace headrace::text {
namespace {

using model::cat;
constexpr size_t kMostPieces = 256; // of a template, and ids of a special token

bool isId(const nlohmann::json &value) {
  return value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(kMostIds);
}

// special_tokens[name].ids
absl::Status readSpecial(Section &section, const std::string &name, std::vector<int32_t> &ids) {
  const nlohmann::json *tokens = section.reader.find("special_tokens");
  const bool listed = tokens != nullptr && tokens->is_object() && tokens->contains(name) && (*tokens)[name].is_object();
  const nlohmann::json *list = listed && (*tokens)[name].contains("ids") ? &(*tokens)[name]["ids"] : nullptr;
  bool valid = list != nullptr && list->is_array() && list->size() <= kMostPieces;
  for (size_t i = 0; valid && i < list->size(); ++i)
    valid = isId((*list)[i]);
  if (!valid) {
    section.reader.refuse("special_tokens", cat("the ids of ", model::escaped(name, 80)));
    return section.reader.status();
  }
  for (const nlohmann::json &id : *list)
    ids.push_back(id.get<int32_t>());
  return absl::OkStatus();
}

// TemplateProcessing's template for one text.
absl::Status readTemplate(Section &section, std::vector<int32_t> &ids) {
  RETURN_IF_ERROR(section.only({"type", "single", "pair", "special_tokens"}));
  const nlohmann::json *single = section.reader.find("single");
  constexpr std::string_view kExpected =
      "a list of {\"Sequence\": {\"id\": \"A\"}} and {\"SpecialToken\": {\"id\": ...}}";
  const auto refused = [&] {
    section.reader.refuse("single", kExpected);
    return section.reader.status();
  };
  if (single == nullptr || !single->is_array() || single->size() > kMostPieces)
    return refused();
  ids.clear();
  for (const nlohmann::json &piece : *single) {
    if (!piece.is_object() || piece.size() != 1 || !piece.begin()->is_object())
      return refused();
    const auto id = piece.begin()->find("id");
    if (id == piece.begin()->end() || !id->is_string())
      return refused();
    if (piece.begin().key() == "Sequence" && *id == "A") {
      ids.push_back(PostProcessor::kText);
    } else if (piece.begin().key() == "SpecialToken") {
      RETURN_IF_ERROR(readSpecial(section, id->get<std::string>(), ids));
    } else {
      return refused();
    }
  }
  return absl::OkStatus();
}

// ["<s>", 0]
std::optional<int32_t> readPair(Section &section, std::string_view key) {
  const nlohmann::json *pair = section.reader.find(key);
  if (pair != nullptr && pair->is_array() && pair->size() == 2 && (*pair)[0].is_string() && isId((*pair)[1]))
    return (*pair)[1].get<int32_t>();
  section.reader.refuse(key, "a token and its id");
  return std::nullopt;
}

absl::Status readInto(const nlohmann::json &value, std::string_view path, std::string_view key, PostProcessor &made,
                      bool &any) {
  Section section(value, path, key);
  const std::string type = section.type();
  RETURN_IF_ERROR(section.reader.status());
  if (type == "Sequence") {
    RETURN_IF_ERROR(section.only({"type", "processors"}));
    return section.eachOf("processors", [&](const nlohmann::json &member, const std::string &memberKey) {
      return readInto(member, path, memberKey, made, any);
    });
  }
  if (type == "ByteLevel") // only about the places of tokens in the text
    return section.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  if (std::exchange(any, true))
    return section.unsupportedType("one processor that adds tokens");
  if (type == "TemplateProcessing")
    return readTemplate(section, made.ids);
  if (type != "RobertaProcessing" && type != "BertProcessing")
    return section.unsupportedType("TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing or Sequence");
  const std::optional<int32_t> first = readPair(section, "cls"), last = readPair(section, "sep");
  RETURN_IF_ERROR(section.only({"type", "cls", "sep", "trim_offsets", "add_prefix_space"}));
  made.ids = {*first, PostProcessor::kText, *last};
  return absl::OkStatus();
}

} // namespace

absl::StatusOr<PostProcessor> PostProcessor::parse(const nlohmann::json &value, std::string_view path) {
  PostProcessor made;
  bool any = false;
  if (!value.is_null())
    RETURN_IF_ERROR(readInto(value, path, "post_processor", made, any));
  return made;
}

std::vector<int32_t> PostProcessor::apply(std::vector<int32_t> text, bool specials) const {
  if (ids.size() == 1 && ids[0] == kText)
    return text;
  std::vector<int32_t> all;
  for (const int32_t id : ids) {
    if (id == kText)
      all.insert(all.end(), text.begin(), text.end());
    else if (specials)
      all.push_back(id);
  }
  return all;
}

} // namespace headrace::text
