// SPDX-License-Identifier: Apache-2.0
//
// What stands beside a vocabulary that is no tokenizer.json: tokenizer_config.json, special_tokens_map.json and
// added_tokens.json, each of which may be missing.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/text/tokenizer/AddedTokens.h"
#include "runtime/text/tokenizer/Vocabulary.h"

namespace headrace::text {

struct TokenizerConfig {
  // bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token; empty content: null.
  struct Named {
    std::string name;
    AddedToken token;
  };
  std::vector<Named> named;
  std::vector<AddedToken> extra; // additional_special_tokens or extra_special_tokens
  std::vector<AddedToken> added; // of added_tokens_decoder or added_tokens.json, by id
  std::optional<bool> addBos, addEos;
  bool addPrefixSpace = false;

  // InvalidArgument begins with the file and names the key.
  static absl::StatusOr<TokenizerConfig> open(const std::string &folder);

  // Null: nowhere said.
  const AddedToken *find(std::string_view name) const;
  // All of them, each once, with the ids that they have in the vocabulary or, in this order, behind it.
  absl::StatusOr<std::vector<AddedToken>> number(const Vocabulary &vocabulary, const std::string &folder) const;
};

} // namespace headrace::text
