// SPDX-License-Identifier: Apache-2.0
//
// Reading JSON that somebody else wrote (config.json, index.json, safetensors headers): one object at a time, each key
// with its type and range; the first refusal is kept and names file, key, value and what was expected.
//
//   absl::StatusOr<nlohmann::json> document = parseJson(text, "config.json");
//   JsonReader reader(*document, "config.json");
//   spec.hidden = reader.integer("hidden_size", 4096, 1, kMost);
//   if (!reader.status().ok()) return reader.status();
//
// For .cpp files only: nlohmann-json is no part of the contracts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headrace::model {

// Refuses what is not JSON (a Git LFS pointer by name), nesting deeper than 64, and a key that stands twice in one
// object. Infinity, -Infinity and NaN are numbers, as Python's json writes them.
absl::StatusOr<nlohmann::json> parseJson(std::string_view text, std::string_view where);
// The same, with the keys of objects in their order; refuses an object of more than 10,000, each of which takes a
// search.
absl::StatusOr<nlohmann::ordered_json> parseOrderedJson(std::string_view text, std::string_view where);

// A value as it stood in the file, cut to a printable length; for messages.
std::string jsonText(const nlohmann::json &value);

class JsonReader {
public:
  // `object` must outlive the reader. `prefix` stands before keys in messages ("rope_scaling.").
  JsonReader(const nlohmann::json &object, std::string_view where, std::string_view prefix = "");

  // The value of a key; null if the key is missing. find() also answers null for a JSON null.
  const nlohmann::json *raw(std::string_view key) const;
  const nlohmann::json *find(std::string_view key) const;

  // With a default: it stands for a missing key. Without one: a missing key is refused. A JSON null is refused, unless
  // the reader's name says otherwise. A refused value reads as the default, or as the least allowed one.
  int64_t integer(std::string_view key, std::optional<int64_t> missing, int64_t least, int64_t most);
  double number(std::string_view key, std::optional<double> missing);
  bool boolean(std::string_view key, bool missing);
  std::string text(std::string_view key, std::optional<std::string> missing);

  // Records a refusal of `key`, "<where>: <key> = <value>: expected <expected>", or that it is missing.
  void refuse(std::string_view key, std::string_view expected);
  // Records a refusal in free words: "<where>: <message>".
  void refuseWith(std::string_view message);

  bool ok() const { return status_.ok(); }
  const absl::Status &status() const { return status_; }

private:
  const nlohmann::json &object_;
  std::string where_, prefix_;
  absl::Status status_;
};

} // namespace headrace::model
