// SPDX-License-Identifier: Apache-2.0
//
// Reads tokenizer.json. For .cpp files only.
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "runtime/text/tokenizer/BpeTokenizer.h"

namespace headrace::text {

// Of the whole file. Its truncation and padding are left aside: nothing is cut or filled up here.
absl::StatusOr<BpeTokenizerParts> readTokenizerJson(const nlohmann::json &file, std::string_view path);

// A vocabulary, {"a": 0, ...}, that stands under `key`.
absl::StatusOr<Vocabulary> readVocabulary(const nlohmann::json &value, std::string_view path, std::string_view key);
// Adds a merge of this rank. InvalidArgument names what is no token.
absl::Status addMerge(const Vocabulary &vocabulary, std::string_view left, std::string_view right, uint32_t rank,
                      MergeTable &merges);
// The same of "a b".
absl::Status addMerge(const Vocabulary &vocabulary, std::string_view line, uint32_t rank, MergeTable &merges);

} // namespace headrace::text
