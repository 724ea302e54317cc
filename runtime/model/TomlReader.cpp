// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/TomlReader.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_join.h"
#include "runtime/model/Text.h"

#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

namespace headrace::model {
namespace {

// toml++ bounds the nesting of what it parses (TOML_MAX_NESTED_VALUES, 256), and so this recursion.
TomlValue convert(const toml::node &node) {
  using Kind = TomlValue::Kind;
  TomlValue value;
  value.line = node.source().begin.line;
  if (const toml::table *table = node.as_table()) {
    value.kind = Kind::Table;
    for (const auto &[key, item] : *table) {
      value.keys.emplace_back(key.str());
      value.items.push_back(convert(item));
    }
  } else if (const toml::array *array = node.as_array()) {
    value.kind = Kind::Array;
    for (const toml::node &item : *array)
      value.items.push_back(convert(item));
  } else if (const auto *text = node.as_string()) {
    value.kind = Kind::String;
    value.text = text->get();
  } else if (const auto *integer = node.as_integer()) {
    value.kind = Kind::Integer;
    value.integer = integer->get();
  } else if (const auto *number = node.as_floating_point()) {
    value.kind = Kind::Float;
    value.number = number->get();
  } else if (const auto *boolean = node.as_boolean()) {
    value.kind = Kind::Boolean;
    value.boolean = boolean->get();
  } else {
    value.kind = Kind::Other;
    value.text = "a date or time";
  }
  return value;
}

} // namespace

const TomlValue *TomlValue::find(std::string_view key) const {
  const auto at = std::find(keys.begin(), keys.end(), key);
  return at == keys.end() ? nullptr : &items[static_cast<size_t>(at - keys.begin())];
}

std::string TomlValue::toString() const {
  constexpr size_t kMost = 80;
  switch (kind) {
  case Kind::String:
    return cat("\"", escaped(text, kMost), text.size() > kMost ? "...\"" : "\"");
  case Kind::Integer:
    return cat(integer);
  case Kind::Float:
    return cat(number);
  case Kind::Boolean:
    return boolean ? "true" : "false";
  case Kind::Array: {
    std::vector<std::string> parts;
    for (size_t i = 0; i < std::min<size_t>(items.size(), 8); ++i)
      parts.push_back(items[i].kind == Kind::Array ? "[...]" : items[i].toString());
    if (items.size() > parts.size())
      parts.push_back("...");
    return cat("[", absl::StrJoin(parts, ", "), "]");
  }
  case Kind::Table:
    return "{...}";
  case Kind::Other:
    return text;
  }
  return "?";
}

absl::StatusOr<TomlValue> parseToml(std::string_view text, std::string_view path) {
  const toml::parse_result result = toml::parse(text);
  if (!result) {
    const toml::parse_error &error = result.error();
    return absl::InvalidArgumentError(
        cat(path, ":", error.source().begin.line, ": expected TOML: ", escaped(error.description().substr(0, 300))));
  }
  return convert(result.table());
}

TomlReader::TomlReader(const TomlValue &table, std::string_view path, std::string_view name)
    : table_(table), path_(path), name_(name) {
  if (table.kind != TomlValue::Kind::Table)
    refuseWith(absl::InvalidArgumentError(
        cat(path_, ":", table.line, ": ", name_, " = ", table.toString(), ": expected a table")));
}

const TomlValue *TomlReader::value(std::string_view key) {
  asked_.emplace(key);
  return table_.find(key);
}

std::optional<int64_t> TomlReader::integer(std::string_view key, int64_t least, int64_t most) {
  const TomlValue *found = value(key);
  if (found == nullptr)
    return std::nullopt;
  if (found->kind == TomlValue::Kind::Integer && found->integer >= least && found->integer <= most)
    return found->integer;
  refuse(key, cat("an integer from ", least, " to ", most));
  return std::nullopt;
}

std::optional<double> TomlReader::number(std::string_view key) {
  const TomlValue *found = value(key);
  if (found == nullptr)
    return std::nullopt;
  if (found->kind == TomlValue::Kind::Integer)
    return static_cast<double>(found->integer);
  if (found->kind == TomlValue::Kind::Float && std::isfinite(found->number))
    return found->number;
  refuse(key, "a finite number");
  return std::nullopt;
}

std::optional<bool> TomlReader::boolean(std::string_view key) {
  const TomlValue *found = value(key);
  if (found == nullptr)
    return std::nullopt;
  if (found->kind == TomlValue::Kind::Boolean)
    return found->boolean;
  refuse(key, "true or false");
  return std::nullopt;
}

std::optional<std::string> TomlReader::text(std::string_view key) {
  const TomlValue *found = value(key);
  if (found == nullptr)
    return std::nullopt;
  if (found->kind == TomlValue::Kind::String)
    return found->text;
  refuse(key, "a string");
  return std::nullopt;
}

std::optional<std::vector<int64_t>> TomlReader::integers(std::string_view key, int64_t least, int64_t most) {
  const TomlValue *found = value(key);
  if (found == nullptr)
    return std::nullopt;
  std::vector<int64_t> values;
  bool valid = found->kind == TomlValue::Kind::Array;
  if (valid)
    for (const TomlValue &item : found->items) {
      valid = valid && item.kind == TomlValue::Kind::Integer && item.integer >= least && item.integer <= most;
      values.push_back(item.integer);
    }
  if (valid)
    return values;
  refuse(key, cat("a list of integers from ", least, " to ", most));
  return std::nullopt;
}

std::optional<uint64_t> TomlReader::bytes(std::string_view key, BytesParser parse) {
  const TomlValue *found = value(key);
  if (found == nullptr)
    return std::nullopt;
  if (found->kind == TomlValue::Kind::Integer && found->integer >= 0)
    return static_cast<uint64_t>(found->integer);
  if (found->kind != TomlValue::Kind::String) {
    refuse(key, "bytes such as \"8GiB\"");
    return std::nullopt;
  }
  absl::StatusOr<uint64_t> parsed = parse(found->text, where(key));
  if (parsed.ok())
    return *parsed;
  refuseWith(parsed.status());
  return std::nullopt;
}

std::optional<double> TomlReader::rate(std::string_view key, RateParser parse) {
  const TomlValue *found = value(key);
  if (found == nullptr)
    return std::nullopt;
  if (found->kind != TomlValue::Kind::String)
    return number(key);
  absl::StatusOr<double> parsed = parse(found->text, where(key));
  if (parsed.ok())
    return *parsed;
  refuseWith(parsed.status());
  return std::nullopt;
}

std::string TomlReader::where(std::string_view key) const {
  const TomlValue *found = table_.find(key);
  return cat(path_, ":", found != nullptr ? found->line : table_.line, ": ", name_, name_.empty() ? "" : ".", key);
}

void TomlReader::refuse(std::string_view key, std::string_view expected) {
  const TomlValue *found = table_.find(key);
  refuseWith(absl::InvalidArgumentError(found == nullptr
                                            ? cat(where(key), " is missing: expected ", expected)
                                            : cat(where(key), " = ", found->toString(), ": expected ", expected)));
}

void TomlReader::refuseWith(const absl::Status &status) {
  if (status_.ok())
    status_ = status;
}

absl::Status TomlReader::finish() {
  if (!status_.ok())
    return status_;
  for (const std::string &key : table_.keys) {
    if (asked_.contains(key))
      continue;
    const std::vector<std::string> known(asked_.begin(), asked_.end());
    return absl::InvalidArgumentError(
        cat(where(escaped(key, 80)), ": unknown key: expected one of ", absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

} // namespace headrace::model
