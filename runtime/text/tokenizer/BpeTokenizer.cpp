// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/BpeTokenizer.h"

#include <set>
#include <utility>

#include "runtime/base/StatusMacros.h"
#include "runtime/base/Text.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

using model::cat;

constexpr size_t kLongestText = size_t{1} << 30; // bytes
constexpr size_t kMostMemories = 64;             // kept for threads to come

} // namespace

// What one thread needs to encode.
struct BpeTokenizer::Memory {
  NormalizerMemory normalizing;
  MatchMemory matching;
  PreTokenizerMemory cutting;
  BpeMemory merging;
};

BpeTokenizer::BpeTokenizer(BpeTokenizerParts parts)
    : parts_(std::move(parts)), bpe_(parts_.vocabulary, parts_.options, std::move(parts_.merges)) {}

absl::StatusOr<std::shared_ptr<const Tokenizer>> BpeTokenizer::make(BpeTokenizerParts parts, std::string_view path) {
  parts.options.bytes = parts.preTokenizer.emitsBytes();
  const std::shared_ptr<BpeTokenizer> made(new BpeTokenizer(std::move(parts)));
  RETURN_IF_ERROR(made->addTokens(path));
  for (const int32_t id : made->parts_.postProcessor.ids)
    if (id != PostProcessor::kText && made->tokenOf(id).empty())
      return absl::InvalidArgumentError(cat(path, ": post_processor adds id ", id, ": expected that of a token"));
  return std::shared_ptr<const Tokenizer>(made);
}

// Takes over parts_.added, and what follows from them: which tokens are found, hidden and shown.
absl::Status BpeTokenizer::addTokens(std::string_view path) {
  std::vector<std::optional<std::string>> normalForms;
  std::set<std::string_view> specials;
  NormalizerMemory memory;
  MatchMemory matching;
  for (const AddedToken &token : parts_.added) {
    const auto refused = [&, path](std::string_view why) {
      return absl::InvalidArgumentError(cat(path, ": the added token ", model::escaped(token.content, 80), " ", why));
    };
    if (!added_.add(token.content, token.id))
      return refused("stands twice, or has another one's id");
    if (token.special)
      specials.insert(token.content);
    if (!token.normalized) {
      literal_.add(token.content, token);
      continue;
    }
    ASSIGN_OR_RETURN(piece, parts_.normalizer.apply({token.content, 0}, memory, matching));
    if (piece.text.empty() || piece.text.size() > kLongestAddedToken)
      return refused(piece.text.empty() ? "is empty once normalised" : "is too long once normalised");
    if (!normalized_.add(piece.text, token))
      return refused("is another one once normalised");
    if (piece.text != token.content) {
      normalForms.resize(static_cast<size_t>(std::max(size(), int64_t{token.id} + 1)));
      normalForms[static_cast<size_t>(token.id)] = std::string(piece.text);
    }
  }
  special_.resize(static_cast<size_t>(size()));
  normalForms.resize(special_.size());
  parts_.decoder.prepare(size(), [&](int32_t id) -> std::optional<std::string_view> {
    const auto index = static_cast<size_t>(id);
    if (!added_.has(id) && !parts_.vocabulary.has(id))
      return std::nullopt;
    std::string_view shown = added_.has(id) ? added_.token(id) : parts_.vocabulary.token(id);
    if (normalForms[index]) // what it is decoded as, and then it is not known for special
      shown = *normalForms[index];
    special_[index] = specials.count(shown) > 0;
    return shown;
  });
  return absl::OkStatus();
}

std::unique_ptr<BpeTokenizer::Memory> BpeTokenizer::takeMemory() const {
  {
    const std::lock_guard lock(mutex_);
    if (!unused_.empty()) {
      std::unique_ptr<Memory> memory = std::move(unused_.back());
      unused_.pop_back();
      return memory;
    }
  }
  return std::make_unique<Memory>();
}

void BpeTokenizer::giveBack(std::unique_ptr<Memory> memory) const {
  const std::lock_guard lock(mutex_);
  if (unused_.size() < kMostMemories)
    unused_.push_back(std::move(memory));
}

absl::StatusOr<std::vector<int32_t>> BpeTokenizer::encode(std::string_view text, SpecialTokens specials) const {
  if (text.size() > kLongestText)
    return absl::InvalidArgumentError(cat("a text of ", text.size(), " bytes: expected at most ", kLongestText));
  if (const size_t good = utf8Prefix(text); good != text.size())
    return absl::InvalidArgumentError(cat("expected UTF-8: byte ", good, " of the text is none"));
  std::vector<int32_t> ids;
  std::unique_ptr<Memory> memory = takeMemory();
  const absl::Status status = encodeInto(text, *memory, ids);
  giveBack(std::move(memory));
  RETURN_IF_ERROR(status);
  return parts_.postProcessor.apply(std::move(ids), specials == SpecialTokens::Add);
}

absl::Status BpeTokenizer::encodeInto(std::string_view text, Memory &memory, std::vector<int32_t> &ids) const {
  return literal_.split(text, [&](size_t begin, size_t end, int32_t id) {
    if (id >= 0) {
      ids.push_back(id);
      return absl::OkStatus();
    }
    const size_t fromBegin = begin == 0 ? codePointAt(text, 0).bytes : 0;
    return encodePiece({text.substr(begin, end - begin), fromBegin}, memory, ids);
  });
}

absl::Status BpeTokenizer::encodePiece(Piece piece, Memory &memory, std::vector<int32_t> &ids) const {
  if (!parts_.normalizer.changesNothing()) {
    ASSIGN_OR_RETURN(changed, parts_.normalizer.apply(piece, memory.normalizing, memory.matching));
    piece = changed;
  }
  return normalized_.split(piece.text, [&](size_t begin, size_t end, int32_t id) {
    if (id >= 0) {
      ids.push_back(id);
      return absl::OkStatus();
    }
    const size_t fromBegin = piece.fromBegin > begin ? piece.fromBegin - begin : 0;
    return parts_.preTokenizer.apply({piece.text.substr(begin, end - begin), fromBegin}, memory.cutting,
                                     memory.matching,
                                     [&](std::string_view word) { bpe_.encode(word, memory.merging, ids); });
  });
}

std::optional<int32_t> BpeTokenizer::idOf(std::string_view token) const {
  const std::optional<int32_t> added = added_.find(token);
  return added ? added : parts_.vocabulary.find(token);
}

std::string BpeTokenizer::tokenOf(int32_t id) const {
  return std::string(added_.has(id) ? added_.token(id) : parts_.vocabulary.token(id));
}

bool BpeTokenizer::isSpecial(int32_t id) const { return id >= 0 && id < size() && special_[static_cast<size_t>(id)]; }

class BpeTokenizer::TokenDecoding final : public Tokenizer::Decoding {
public:
  TokenDecoding(const BpeTokenizer &tokenizer, bool showSpecial)
      : tokenizer_(tokenizer), showSpecial_(showSpecial), stages_(tokenizer.parts_.decoder.start()) {}
  void push(int32_t id, std::string &text) override {
    if ((!tokenizer_.added_.has(id) && !tokenizer_.parts_.vocabulary.has(id)) ||
        (!showSpecial_ && tokenizer_.special_[static_cast<size_t>(id)] && !tokenizer_.parts_.decoder.says(id)))
      return;
    stages_->token(tokenizer_.parts_.decoder.prepared(id), text);
  }
  void finish(std::string &text) override { stages_->finish(text); }

private:
  const BpeTokenizer &tokenizer_;
  const bool showSpecial_;
  std::unique_ptr<DecoderStages> stages_;
};

std::unique_ptr<Tokenizer::Decoding> BpeTokenizer::startDecoding(bool showSpecial) const {
  return std::make_unique<TokenDecoding>(*this, showSpecial);
}

std::string BpeTokenizer::decode(absl::Span<const int32_t> ids, bool showSpecial) const {
  std::string text;
  TokenDecoding decoding(*this, showSpecial);
  for (const int32_t id : ids)
    decoding.push(id, text);
  decoding.finish(text);
  return text;
}

} // namespace headrace::text
