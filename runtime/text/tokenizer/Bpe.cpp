// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Bpe.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_format.h"
#include "runtime/text/tokenizer/ByteAlphabet.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

constexpr size_t kShort = 64; // symbols; up to here looking through all pairs is faster than a queue

} // namespace

void MergeTable::reserve(size_t merges) {
  size_t slots = 64;
  while (merges * 3 > slots * 2)
    slots *= 2;
  std::vector<Slot> before = std::exchange(slots_, std::vector<Slot>(slots));
  mask_ = slots - 1;
  taken_ = 0;
  for (const Slot &slot : before)
    if (slot.pair != kEmpty)
      set(static_cast<int32_t>(slot.pair >> 32), static_cast<int32_t>(slot.pair), slot.merge);
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  if ((taken_ + 1) * 3 > slots_.size() * 2)
    reserve(taken_ * 2 + 64);
  const uint64_t pair = key(left, right);
  size_t slot = mixBits(pair) & mask_;
  while (slots_[slot].pair != kEmpty && slots_[slot].pair != pair)
    slot = (slot + 1) & mask_;
  taken_ += slots_[slot].pair == kEmpty ? 1 : 0;
  slots_[slot] = {pair, merge};
}

BpeMemory::BpeMemory() : seen_(kSeen) {}

Bpe::Bpe(const Vocabulary &vocabulary, const BpeOptions &options, MergeTable merges)
    : vocabulary_(vocabulary), options_(options), merges_(std::move(merges)) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    std::string letter;
    if (options.bytes)
      appendUtf8(byteLetter(static_cast<uint8_t>(byte)), letter);
    else if (byte < 0x80)
      letter = static_cast<char>(byte);
    byteIds_[byte] = letter.empty() ? -1 : vocabulary.find(letter).value_or(-1);
    fallbackIds_[byte] = options.byteFallback ? vocabulary.find(absl::StrFormat("<0x%02X>", byte)).value_or(-1) : -1;
  }
  if (options.bytes && options.ignoreMerges) {
    std::string bytes;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      bytes.clear();
      if (vocabulary.has(id) && appendBytesOfLetters(vocabulary.token(id), bytes))
        words_.add(bytes, id);
    }
  }
}

void Bpe::encode(std::string_view word, BpeMemory &memory, std::vector<int32_t> &ids) const {
  if (word.empty())
    return;
  BpeMemory::Seen *seen = nullptr;
  if (word.size() <= sizeof seen->word) {
    seen = &memory.seen_[hashBytes(word) & (BpeMemory::kSeen - 1)];
    if (seen->bytes == word.size() && std::memcmp(seen->word, word.data(), word.size()) == 0) {
      ids.insert(ids.end(), seen->ids, seen->ids + seen->tokens);
      return;
    }
  }
  std::vector<int32_t> &symbols = memory.symbols_;
  symbols.clear();
  if (options_.ignoreMerges)
    if (const std::optional<int32_t> id = (options_.bytes ? words_ : vocabulary_).find(word))
      symbols.push_back(*id);
  if (symbols.empty()) {
    readSymbols(word, symbols);
    if (symbols.size() <= kShort)
      mergeShort(symbols);
    else
      mergeLong(memory);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  if (seen != nullptr && symbols.size() <= std::size(seen->ids)) {
    seen->bytes = static_cast<uint8_t>(word.size());
    seen->tokens = static_cast<uint8_t>(symbols.size());
    std::memcpy(seen->word, word.data(), word.size());
    std::copy(symbols.begin(), symbols.end(), seen->ids);
  }
}

void Bpe::readSymbols(std::string_view word, std::vector<int32_t> &symbols) const {
  std::optional<int32_t> unknown; // not yet among the symbols: the next one may be fused with it
  std::string letter;
  for (size_t at = 0; at < word.size();) {
    const auto first = static_cast<unsigned char>(word[at]);
    std::string_view character;
    int32_t id = byteIds_[first];
    if (options_.bytes) {
      at += 1;
    } else {
      character = word.substr(at, codePointAt(word, at).bytes);
      at += character.size();
      if (character.size() > 1)
        id = vocabulary_.find(character).value_or(-1);
    }
    if (id >= 0) {
      if (unknown)
        symbols.push_back(*std::exchange(unknown, std::nullopt));
      symbols.push_back(id);
      continue;
    }
    if (options_.byteFallback) {
      if (options_.bytes) {
        letter.clear();
        appendUtf8(byteLetter(first), letter);
        character = letter;
      }
      const auto fallback = [&](char byte) { return fallbackIds_[static_cast<unsigned char>(byte)]; };
      if (std::all_of(character.begin(), character.end(), [&](char byte) { return fallback(byte) >= 0; })) {
        for (const char byte : character) // an unknown one before them stays for behind them, as in the package
          symbols.push_back(fallback(byte));
        continue;
      }
    }
    if (unknown && !options_.fuseUnknown)
      symbols.push_back(*unknown);
    unknown = options_.unknown;
  }
  if (unknown)
    symbols.push_back(*unknown);
}

void Bpe::mergeShort(std::vector<int32_t> &symbols) const {
  std::array<MergeTable::Merge, kShort> merges; // of each symbol with the next
  size_t count = symbols.size();
  for (size_t i = 0; i + 1 < count; ++i)
    merges[i] = merges_.find(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (merges[i].rank < merges[best].rank)
        best = i;
    if (merges[best].rank == MergeTable::kNone)
      break;
    symbols[best] = merges[best].id;
    --count;
    for (size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      merges[i - 1] = merges[i];
    }
    if (best > 0)
      merges[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
    if (best + 1 < count)
      merges[best] = merges_.find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

void Bpe::mergeLong(BpeMemory &memory) const {
  std::vector<int32_t> &symbols = memory.symbols_, &previous = memory.previous_, &next = memory.next_;
  std::vector<uint64_t> &queue = memory.queue_;
  const auto count = static_cast<int32_t>(symbols.size());
  previous.resize(symbols.size());
  next.resize(symbols.size());
  queue.clear();
  const auto at = [](int32_t place) { return static_cast<size_t>(place); };
  const auto pair = [&](int32_t left) { return merges_.find(symbols[at(left)], symbols[at(next[at(left)])]); };
  const auto entry = [](uint32_t rank, int32_t left) { return uint64_t{rank} << 32 | static_cast<uint32_t>(left); };
  const auto push = [&](int32_t left) {
    if (const MergeTable::Merge merge = pair(left); merge.rank != MergeTable::kNone) {
      queue.push_back(entry(merge.rank, left));
      std::push_heap(queue.begin(), queue.end(), std::greater<>());
    }
  };
  for (int32_t i = 0; i < count; ++i) {
    previous[at(i)] = i - 1;
    next[at(i)] = i + 1 < count ? i + 1 : -1;
  }
  for (int32_t i = 0; i + 1 < count; ++i)
    if (const MergeTable::Merge merge = pair(i); merge.rank != MergeTable::kNone)
      queue.push_back(entry(merge.rank, i));
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(queue.back() >> 32);
    const auto left = static_cast<int32_t>(static_cast<uint32_t>(queue.back()));
    queue.pop_back();
    if (symbols[at(left)] < 0 || next[at(left)] < 0)
      continue;
    const MergeTable::Merge merge = pair(left);
    if (merge.rank != rank) // one of the two has been merged since
      continue;
    const int32_t right = next[at(left)], behind = next[at(right)];
    symbols[at(left)] = merge.id;
    symbols[at(right)] = -1;
    next[at(left)] = behind;
    if (behind >= 0) {
      previous[at(behind)] = left;
      push(left);
    }
    if (previous[at(left)] >= 0)
      push(previous[at(left)]);
  }
  symbols.erase(std::remove(symbols.begin(), symbols.end(), -1), symbols.end());
}

} // namespace headrace::text
