// SPDX-License-Identifier: Apache-2.0
//
// What the tokenizer tests share: a tokenizer.json of a few tokens, whose parts each test replaces.
#pragma once

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "runtime/text/tokenizer/TextStream.h"
#include "runtime/text/tokenizer/Tokenizer.h"

namespace headrace::text {

using nlohmann::json;
using Ids = std::vector<int32_t>;

// Tokens numbered from 0, and merges "a b".
inline json bpeModel(const std::vector<std::string> &tokens, const std::vector<std::string> &merges) {
  json vocabulary = json::object();
  for (size_t id = 0; id < tokens.size(); ++id)
    vocabulary[tokens[id]] = id;
  return {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}};
}

inline json addedToken(int64_t id, const std::string &content) {
  return {{"id", id}, {"content", content}, {"special", true}, {"normalized", false}};
}

inline absl::StatusOr<std::shared_ptr<const Tokenizer>> read(const json &file) {
  return Tokenizer::parse(file.dump(), "tokenizer.json");
}

inline std::shared_ptr<const Tokenizer> mustRead(const json &file) {
  absl::StatusOr<std::shared_ptr<const Tokenizer>> tokenizer = read(file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

inline Ids encoded(const Tokenizer &tokenizer, const std::string &text, SpecialTokens specials = SpecialTokens::Leave) {
  const absl::StatusOr<Ids> ids = tokenizer.encode(text, specials);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? *ids : Ids();
}

// The tokens themselves, for tests that are about where a text is cut.
inline std::vector<std::string> tokensOf(const Tokenizer &tokenizer, const std::string &text) {
  std::vector<std::string> tokens;
  for (const int32_t id : encoded(tokenizer, text))
    tokens.push_back(tokenizer.tokenOf(id));
  return tokens;
}

inline void expectRefused(const json &file, const std::string &message) {
  const auto tokenizer = read(file);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(tokenizer.status().message()), "tokenizer.json: " + message);
}

} // namespace headrace::text
