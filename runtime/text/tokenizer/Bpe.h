// SPDX-License-Identifier: Apache-2.0
//
// Byte pair encoding: a word's characters, merged pair by pair in the order of the merges, to tokens.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "runtime/text/tokenizer/HashBytes.h"
#include "runtime/text/tokenizer/Vocabulary.h"

namespace headrace::text {

// Pairs of ids, and what each is merged to.
class MergeTable {
public:
  struct Merge {
    uint32_t rank; // the lowest is merged first
    int32_t id;
  };
  static constexpr uint32_t kNone = 0xFFFFFFFF; // the rank of a pair that is not merged

  void reserve(size_t merges);
  void set(int32_t left, int32_t right, Merge merge); // over what the pair had
  Merge find(int32_t left, int32_t right) const {
    if (slots_.empty())
      return {kNone, -1};
    const uint64_t pair = key(left, right);
    for (size_t slot = mixBits(pair) & mask_;; slot = (slot + 1) & mask_)
      if (slots_[slot].pair == pair || slots_[slot].pair == kEmpty)
        return slots_[slot].merge;
  }

private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  struct Slot {
    uint64_t pair = kEmpty;
    Merge merge = {kNone, -1};
  };
  static uint64_t key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  std::vector<Slot> slots_; // a power of two of them, at most two thirds taken
  size_t mask_ = 0, taken_ = 0;
};

// What a thread that encodes keeps from word to word: the tokens of words seen lately, and room to merge in. Of one
// Bpe.
class BpeMemory {
public:
  BpeMemory();

private:
  friend class Bpe;
  struct alignas(64) Seen { // one cache line
    uint8_t bytes = 0, tokens = 0;
    char word[26];
    int32_t ids[9];
  };
  static constexpr size_t kSeen = 8192;

  std::vector<Seen> seen_;
  std::vector<int32_t> symbols_, previous_, next_;
  std::vector<uint64_t> queue_; // rank and place of pairs: a heap, the first to be merged in front
};

struct BpeOptions {
  // A word is any bytes, and stands in the vocabulary in the letters of the byte alphabet; else its characters.
  bool bytes = false;
  bool byteFallback = false; // a character that is no token becomes <0x..> for each of its bytes
  bool ignoreMerges = false; // a word that is a token is that token
  bool fuseUnknown = false;  // characters side by side that are no tokens become one unknown token
  std::optional<int32_t> unknown;
};

class Bpe {
public:
  // The vocabulary outlives it.
  Bpe(const Vocabulary &vocabulary, const BpeOptions &options, MergeTable merges);

  // Appends the word's tokens.
  void encode(std::string_view word, BpeMemory &memory, std::vector<int32_t> &ids) const;

private:
  void readSymbols(std::string_view word, std::vector<int32_t> &symbols) const;
  void mergeShort(std::vector<int32_t> &symbols) const;
  void mergeLong(BpeMemory &memory) const;

  const Vocabulary &vocabulary_;
  BpeOptions options_;
  MergeTable merges_;
  Vocabulary words_;                     // with bytes and ignoreMerges: tokens as bytes
  std::array<int32_t, 256> byteIds_;     // with bytes: a byte's token, -1 for none; else an ASCII character's
  std::array<int32_t, 256> fallbackIds_; // <0x..>, -1 for none
};

} // namespace headrace::text
