// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/KnownPatterns.h"

#include <array>
#include <tuple>

#include "runtime/text/tokenizer/Unicode.h"
#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

constexpr uint8_t kLetter = UnicodeTable::kLetter, kNumber = UnicodeTable::kNumber, kSpace = UnicodeTable::kSpace;
constexpr uint8_t kKinds = kLetter | kNumber | kSpace; // none of them: [^\s\p{L}\p{N}]

constexpr std::array<uint8_t, 128> asciiKinds() {
  std::array<uint8_t, 128> kinds{};
  for (const auto &[first, last, kind] : {std::tuple('a', 'z', kLetter),
                                          {'A', 'Z', kLetter},
                                          {'0', '9', kNumber},
                                          {'\t', '\r', kSpace},
                                          {' ', ' ', kSpace}})
    for (auto c = static_cast<unsigned char>(first); c <= static_cast<unsigned char>(last); ++c)
      kinds[c] = kind;
  return kinds;
}
constexpr std::array<uint8_t, 128> kAscii = asciiKinds();

struct Cursor {
  std::string_view text;
  const UnicodeTable &table;

  // The kind of the character at `at` and its length; none behind the end.
  struct Kind {
    uint8_t kind;
    uint32_t bytes;
  };
  Kind kind(size_t at) const {
    const auto first = static_cast<unsigned char>(text[at]);
    if (first < 0x80)
      return {kAscii[first], 1};
    const CodePoint character = codePointAt(text, at);
    return {static_cast<uint8_t>(table.bits(character.value) & kKinds), character.bytes};
  }
  // Where the run of one kind that goes through `at` ends.
  size_t runEnd(size_t at, uint8_t wanted) const {
    while (at < text.size()) {
      const Kind here = kind(at);
      if (here.kind != wanted)
        break;
      at += here.bytes;
    }
    return at;
  }
  bool isNewline(size_t at) const { return at < text.size() && (text[at] == '\r' || text[at] == '\n'); }
};

// 's|'t|'re|'ve|'m|'ll|'d behind an apostrophe at `at`: where it ends, or `at`.
size_t contractionEnd(std::string_view text, size_t at, bool anyCase) {
  const auto letter = [&](size_t i) {
    if (at + i >= text.size())
      return '\0';
    const char c = text[at + i];
    return anyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(1), second = letter(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd')
    return at + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
    return at + 3;
  if (anyCase && first == '\xC5' && second == '\xBF') // U+017F, the long s
    return at + 3;
  return at;
}

// \s+(?!\S)|\s+ where white space begins at `at`, of `first` bytes, and ends at `end`.
size_t spacesEnd(const Cursor &cursor, size_t at, size_t first, size_t end) {
  if (end == cursor.text.size() || at + first == end)
    return end;
  return end - codePointBefore(cursor.text, end).bytes;
}

size_t matchGpt2(const Cursor &cursor, size_t at) {
  const std::string_view text = cursor.text;
  if (text[at] == '\'')
    if (const size_t end = contractionEnd(text, at, /*anyCase=*/false); end != at)
      return end;
  const Cursor::Kind here = cursor.kind(at);
  if (here.kind != kSpace)
    return cursor.runEnd(at + here.bytes, here.kind);
  if (text[at] == ' ' && at + 1 < text.size())
    if (const Cursor::Kind next = cursor.kind(at + 1); next.kind != kSpace)
      return cursor.runEnd(at + 1 + next.bytes, next.kind);
  return spacesEnd(cursor, at, here.bytes, cursor.runEnd(at, kSpace));
}

// Llama 3's and Qwen 2's, which differ in how many digits go together.
size_t matchCl100k(const Cursor &cursor, size_t at, int digits) {
  const std::string_view text = cursor.text;
  if (text[at] == '\'')
    if (const size_t end = contractionEnd(text, at, /*anyCase=*/true); end != at)
      return end;
  const Cursor::Kind here = cursor.kind(at);
  size_t next = at + here.bytes;
  if (here.kind == kLetter)
    return cursor.runEnd(next, kLetter);
  if (here.kind == kNumber) {
    for (int i = 1; i < digits && next < text.size(); ++i) {
      const Cursor::Kind digit = cursor.kind(next);
      if (digit.kind != kNumber)
        break;
      next += digit.bytes;
    }
    return next;
  }
  const Cursor::Kind second = next < text.size() ? cursor.kind(next) : Cursor::Kind{kSpace, 0};
  if (second.kind == kLetter && !cursor.isNewline(at))
    return cursor.runEnd(next + second.bytes, kLetter);
  if (here.kind == 0 || (text[at] == ' ' && second.kind == 0)) {
    size_t end = cursor.runEnd(next, 0);
    while (cursor.isNewline(end))
      ++end;
    return end;
  }
  const size_t end = cursor.runEnd(next, kSpace);
  for (size_t i = end; i > at; --i) // \s*[\r\n]+
    if (cursor.isNewline(i - 1))
      return i;
  return spacesEnd(cursor, at, here.bytes, end);
}

} // namespace

std::optional<KnownPattern> knownPattern(std::string_view pattern) {
  if (pattern == kGpt2Pattern)
    return KnownPattern::Gpt2;
  if (pattern == kLlama3Pattern)
    return KnownPattern::Llama3;
  if (pattern == kQwen2Pattern)
    return KnownPattern::Qwen2;
  return std::nullopt;
}

size_t matchKnown(KnownPattern pattern, std::string_view text, size_t at) {
  const Cursor cursor = {text, UnicodeTable::get()};
  if (pattern == KnownPattern::Gpt2)
    return matchGpt2(cursor, at);
  return matchCl100k(cursor, at, pattern == KnownPattern::Llama3 ? 3 : 1);
}

} // namespace headrace::text
