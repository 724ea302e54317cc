// SPDX-License-Identifier: Apache-2.0
//
// A tokenizer of a byte pair model and what stands around it, as tokenizer.json says it.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/tokenizer/AddedTokens.h"
#include "runtime/text/tokenizer/Bpe.h"
#include "runtime/text/tokenizer/Decoder.h"
#include "runtime/text/tokenizer/Normalizer.h"
#include "runtime/text/tokenizer/PostProcessor.h"
#include "runtime/text/tokenizer/PreTokenizer.h"
#include "runtime/text/tokenizer/Tokenizer.h"

namespace headrace::text {

struct BpeTokenizerParts {
  Vocabulary vocabulary;
  BpeOptions options; // bytes: set by make()
  MergeTable merges;
  std::vector<AddedToken> added; // with the vocabulary's ids, or new ones
  Normalizer normalizer;
  PreTokenizer preTokenizer;
  PostProcessor postProcessor;
  Decoder decoder;
};

class BpeTokenizer final : public Tokenizer {
public:
  // InvalidArgument begins with `path` and names what of the parts cannot be.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> make(BpeTokenizerParts parts, std::string_view path);

  absl::StatusOr<std::vector<int32_t>> encode(std::string_view text, SpecialTokens specials) const override;
  std::string decode(absl::Span<const int32_t> ids, bool showSpecial) const override;
  int64_t size() const override { return std::max(parts_.vocabulary.size(), added_.size()); }
  bool isSpecial(int32_t id) const override;
  std::optional<int32_t> idOf(std::string_view token) const override;
  std::string tokenOf(int32_t id) const override;
  std::unique_ptr<Decoding> startDecoding(bool showSpecial) const override;

private:
  class TokenDecoding;
  struct Memory;
  explicit BpeTokenizer(BpeTokenizerParts parts);
  absl::Status addTokens(std::string_view path);
  absl::Status encodeInto(std::string_view text, Memory &memory, std::vector<int32_t> &ids) const;
  absl::Status encodePiece(Piece piece, Memory &memory, std::vector<int32_t> &ids) const;
  std::unique_ptr<Memory> takeMemory() const;
  void giveBack(std::unique_ptr<Memory> memory) const;

  BpeTokenizerParts parts_;
  Bpe bpe_;
  Vocabulary added_;          // contents of parts_.added
  std::vector<bool> special_; // by id
  TokenFinder literal_, normalized_;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Memory>> unused_;
};

} // namespace headrace::text
