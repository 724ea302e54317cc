// SPDX-License-Identifier: Apache-2.0
//
// What becomes of tokens that are put together to a text.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "runtime/text/tokenizer/DecoderStages.h"
#include "runtime/text/tokenizer/SplitPattern.h"

namespace headrace::text {

class Decoder {
public:
  // Of tokenizer.json's "decoder", which may be null: then tokens stand with a space between them.
  static absl::StatusOr<Decoder> parse(const nlohmann::json &value, std::string_view path);
  static Decoder byteLevel(); // GPT-2's
  static Decoder sentencePiece(bool dropsFirstSpace);

  // Before prepare(): what a token is shown as, hidden or not.
  void say(int32_t id, std::string_view text) { said_.emplace(id, text); }
  bool says(int32_t id) const { return !said_.empty() && said_.count(id) > 0; }

  // Works out what the steps that look at one token alone make of every token; `tokens` by id, null where there is
  // none.
  void prepare(int64_t size, absl::FunctionRef<std::optional<std::string_view>(int32_t id)> tokens);

  // The decoder outlives the stages.
  std::unique_ptr<DecoderStages> start() const;
  // What start()'s stages are given for a token.
  std::string_view prepared(int32_t id) const { return prepared_.token(id); }

private:
  static absl::Status parseInto(const nlohmann::json &value, std::string_view path, std::string_view key,
                                std::vector<DecoderStep> &steps);

  std::vector<DecoderStep> steps_;
  bool joins_ = false;     // with spaces
  bool readsBytes_ = true; // the first step that is left is ByteLevel, and its tokens are prepared as bytes
  size_t done_ = 0;        // so many of the steps are in prepared_
  PreparedTokens prepared_;
  std::map<int32_t, std::string> said_;
};

} // namespace headrace::text
