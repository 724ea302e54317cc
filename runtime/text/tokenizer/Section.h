// SPDX-License-Identifier: Apache-2.0
//
// One object of a tokenizer file, all of whose keys are known: what is not understood is refused, never skipped.
// For .cpp files only.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/JsonReader.h"
#include "runtime/text/tokenizer/SplitPattern.h"

namespace headrace::text {

inline constexpr size_t kMostSteps = 32; // of a normalizer, a pre_tokenizer, a post_processor, a decoder

struct Section {
  // `key` is where the object stands: "pre_tokenizer.pretokenizers[1]"; empty for the file itself.
  Section(const nlohmann::json &object, std::string_view path, std::string_view key);

  model::JsonReader reader;
  const nlohmann::json &object;
  std::string path, key;

  std::string type() { return reader.text("type", std::nullopt); }
  // Refuses every other key, and answers what was refused so far.
  absl::Status only(std::initializer_list<std::string_view> keys);
  absl::Status unsupportedType(std::string_view supported);
  // The members of a list, each with its key: [{key[0]}, ...]; refused where it is none, or longer than kMostSteps.
  absl::Status eachOf(std::string_view list, absl::FunctionRef<absl::Status(const nlohmann::json &, std::string)> read);
  // {"String": ...} or {"Regex": ...}
  absl::StatusOr<SplitPattern> pattern(std::string_view key);
  // One character.
  uint32_t character(std::string_view key);
};

} // namespace headrace::text
