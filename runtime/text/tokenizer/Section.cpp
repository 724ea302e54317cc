// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Section.h"

#include <algorithm>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {

using model::cat;

Section::Section(const nlohmann::json &object, std::string_view path, std::string_view key)
    : reader(object, path, key.empty() ? std::string() : cat(key, ".")), object(object), path(path), key(key) {}

absl::Status Section::only(std::initializer_list<std::string_view> keys) {
  if (reader.ok())
    for (const auto &[name, value] : object.items())
      if (std::find(keys.begin(), keys.end(), name) == keys.end())
        reader.refuseWith(cat(key.empty() ? "" : cat(key, "."), model::escaped(name, 80), " = ", model::jsonText(value),
                              ": this key is not supported"));
  return reader.status();
}

absl::Status Section::unsupportedType(std::string_view supported) {
  reader.refuse("type", supported);
  return reader.status();
}

absl::Status Section::eachOf(std::string_view list,
                             absl::FunctionRef<absl::Status(const nlohmann::json &, std::string)> read) {
  const nlohmann::json *found = reader.find(list);
  if (found == nullptr || !found->is_array() || found->size() > kMostSteps) {
    reader.refuse(list, cat("a list of at most ", kMostSteps));
    return reader.status();
  }
  for (size_t i = 0; i < found->size(); ++i)
    RETURN_IF_ERROR(read((*found)[i], cat(key.empty() ? "" : cat(key, "."), list, "[", i, "]")));
  return absl::OkStatus();
}

absl::StatusOr<SplitPattern> Section::pattern(std::string_view name) {
  const nlohmann::json *found = reader.find(name);
  const bool one = found != nullptr && found->is_object() && found->size() == 1 && found->begin()->is_string();
  const bool isRegex = one && found->begin().key() == "Regex";
  if (!one || (!isRegex && found->begin().key() != "String")) {
    reader.refuse(name, "{\"String\": ...} or {\"Regex\": ...}");
    return reader.status();
  }
  const std::string &text = found->begin()->get_ref<const std::string &>();
  if (text.empty()) {
    reader.refuse(name, "a pattern that is not empty");
    return reader.status();
  }
  if (!isRegex)
    return SplitPattern::string(text);
  absl::StatusOr<SplitPattern> pattern = SplitPattern::regex(text);
  if (!pattern.ok()) {
    reader.refuseWith(cat(key, ".", name, ".Regex = ", model::jsonText(*found->begin()), ": ",
                          std::string(pattern.status().message())));
    return reader.status();
  }
  return pattern;
}

uint32_t Section::character(std::string_view name) {
  const std::string text = reader.text(name, std::nullopt);
  if (!reader.ok())
    return ' ';
  if (text.empty() || codePointAt(text, 0).bytes != text.size()) {
    reader.refuse(name, "one character");
    return ' ';
  }
  return codePointAt(text, 0).value;
}

} // namespace headrace::text
