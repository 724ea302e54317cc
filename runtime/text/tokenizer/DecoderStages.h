// SPDX-License-Identifier: Apache-2.0
//
// The steps of a decoder, one behind another. A token goes through in pieces, each of whole characters, and every step
// passes on at once what nothing that follows can change.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/SplitPattern.h"

namespace headrace::text {

struct DecoderStep {
  enum class Kind { ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, SentencePiece };
  Kind kind;
  std::optional<SplitPattern> pattern; // Replace
  std::string literal;                 // Replace: the pattern where it is a string
  std::string content;                 // Replace: what for; Strip, Metaspace, SentencePiece: the character
  int64_t start = 0;                   // Strip: at most so many
  // Metaspace: the first token has no spaces. SentencePiece: the text does not begin with one.
  bool dropsFirst = false;
};

// One token of a step that looks at a token alone: Replace, Strip.
std::string applyToToken(const DecoderStep &step, std::string_view token);

// "<0x0A>": 10; -1 for any other token.
int byteOfToken(std::string_view token);

class Stage {
public:
  virtual ~Stage() = default;
  virtual void data(std::string_view text) = 0; // more of the token
  virtual void endToken() = 0;
  virtual void finish() = 0; // no further token; then a new text begins
};

class DecoderStages {
public:
  // From step `first` on. `readsBytes`: its tokens are bytes, and it is ByteLevel.
  DecoderStages(const std::vector<DecoderStep> &steps, size_t first, bool readsBytes, bool joins);
  ~DecoderStages();

  void token(std::string_view text, std::string &out);
  void finish(std::string &out);

private:
  struct Output;
  std::unique_ptr<Output> output_;
  std::vector<std::unique_ptr<Stage>> stages_; // the last first
};

// Texts by id.
class PreparedTokens {
public:
  void set(int32_t id, std::string_view text);
  std::string_view token(int32_t id) const {
    const auto index = static_cast<size_t>(id);
    return index + 1 < ends_.size() ? std::string_view(bytes_).substr(ends_[index], ends_[index + 1] - ends_[index])
                                    : std::string_view();
  }

private:
  std::string bytes_;
  std::vector<uint64_t> ends_ = {0}; // of the one before; ids are set in ascending order
};

} // namespace headrace::text
