// SPDX-License-Identifier: Apache-2.0
//
// Cuts a text into words, which the model makes tokens of one by one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "runtime/text/tokenizer/Normalizer.h"
#include "runtime/text/tokenizer/SplitPattern.h"

namespace headrace::text {

struct PreTokenizerMemory {
  std::vector<std::string> texts, letters; // of each step
};

class PreTokenizer {
public:
  using Sink = absl::FunctionRef<void(std::string_view word)>;

  // Of tokenizer.json's "pre_tokenizer", which may be null: then the text is one word.
  static absl::StatusOr<PreTokenizer> parse(const nlohmann::json &value, std::string_view path);
  // GPT-2's.
  static PreTokenizer byteLevel(bool addPrefixSpace);

  // Whether words are bytes, for BpeOptions::bytes: the last step is ByteLevel.
  bool emitsBytes() const;
  absl::Status apply(Piece piece, PreTokenizerMemory &memory, MatchMemory &matching, Sink word) const;

private:
  enum class Kind { ByteLevel, Split, Metaspace, Digits, Whitespace, WhitespaceSplit, Punctuation };
  enum class Behavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };
  enum class Prefix { Always, First, Never };
  struct Step {
    Kind kind;
    std::optional<SplitPattern> pattern; // ByteLevel: none where it does not cut
    Behavior behavior = Behavior::Isolated;
    bool invert = false;
    Prefix prefix = Prefix::Never; // of ByteLevel a space, Always or Never
    std::string replacement;       // Metaspace
    bool split = true;             // Metaspace
  };
  struct Run;
  static absl::Status parseInto(const nlohmann::json &value, std::string_view path, std::string_view key,
                                std::vector<Step> &steps);
  std::vector<Step> steps_;
};

} // namespace headrace::text
