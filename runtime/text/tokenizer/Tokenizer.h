// SPDX-License-Identifier: Apache-2.0
//
// Text to token ids and back, as the tokenizer files of a Hugging Face folder say; the ids and the text are those of
// the `tokenizers` package.
//
//   ASSIGN_OR_RETURN(tokenizer, text::Tokenizer::open("./qwen2.5-0.5b"));
//   ASSIGN_OR_RETURN(ids, tokenizer->encode("Hello world"));
//   std::string text = tokenizer->decode(ids);
//
// Immutable: any number of threads may use one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace headrace::text {

enum class SpecialTokens : bool { Leave, Add }; // that the post-processor puts around a text (<s> ... </s>)

class Tokenizer {
public:
  // Of a folder: tokenizer.json; else vocab.json with merges.txt; else tokenizer.model. NotFound names what was looked
  // for; InvalidArgument begins with the file and names the key that is broken or not supported.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> open(const std::string &folder);
  // Of a tokenizer.json's text; `path` begins messages.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> parse(std::string_view json, const std::string &path);

  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer &) = delete;
  Tokenizer &operator=(const Tokenizer &) = delete;

  // Special tokens that stand in `text` become their ids. InvalidArgument with the offset where `text` is not UTF-8.
  virtual absl::StatusOr<std::vector<int32_t>> encode(std::string_view text,
                                                      SpecialTokens specials = SpecialTokens::Add) const = 0;
  // The text of all these tokens together, always UTF-8 (U+FFFD for bytes that are not). Ids that are no token's add
  // nothing; special ones only where `showSpecial`.
  virtual std::string decode(absl::Span<const int32_t> ids, bool showSpecial = false) const = 0;

  virtual int64_t size() const = 0; // every id is below
  virtual bool isSpecial(int32_t id) const = 0;
  virtual std::optional<int32_t> idOf(std::string_view token) const = 0; // of a token as it stands in the vocabulary
  virtual std::string tokenOf(int32_t id) const = 0;                     // empty: no token's

  // For TextStream (TextStream.h): a decoder whose input is told token by token.
  class Decoding {
  public:
    virtual ~Decoding() = default;
    virtual void push(int32_t id, std::string &text) = 0; // appends what no later token can change
    virtual void finish(std::string &text) = 0;           // appends the rest, and begins anew
  };
  virtual std::unique_ptr<Decoding> startDecoding(bool showSpecial) const = 0;

protected:
  Tokenizer() = default;
};

} // namespace headrace::text
