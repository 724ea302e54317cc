// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/Utf8.h"

#include <cstring>

#include "runtime/base/Utf8.h"

namespace headrace::text {
namespace {

// What begins at `at`: a character, the beginning of one at the end of the text, or neither.
struct Sequence {
  size_t bytes;     // of the character, or of the longest part of one; at least 1
  bool whole, open; // open: the text ends inside it
};

Sequence sequenceAt(std::string_view text, size_t at) {
  size_t bad = 0;
  if (const size_t whole = model::utf8Length(text.substr(at), &bad); whole > 0)
    return {whole, true, false};
  const auto first = static_cast<unsigned char>(text[at]);
  return {bad, false, at + bad == text.size() && first >= 0xC2 && first <= 0xF4};
}

size_t asciiEnd(std::string_view text, size_t at) {
  for (; at + 8 <= text.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & 0x8080808080808080u) != 0)
      break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80)
    ++at;
  return at;
}

} // namespace

size_t utf8Prefix(std::string_view text) {
  for (size_t at = 0;;) {
    at = asciiEnd(text, at);
    if (at == text.size())
      return at;
    const Sequence sequence = sequenceAt(text, at);
    if (!sequence.whole)
      return at;
    at += sequence.bytes;
  }
}

CodePoint codePointBefore(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80)
    --at;
  return codePointAt(text, at);
}

void appendUtf8(uint32_t codePoint, std::string &text) {
  const auto put = [&](uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (codePoint < 0x80) {
    put(codePoint);
  } else if (codePoint < 0x800) {
    put(0xC0 | codePoint >> 6);
    put(0x80 | (codePoint & 0x3F));
  } else if (codePoint < 0x10000) {
    put(0xE0 | codePoint >> 12);
    put(0x80 | (codePoint >> 6 & 0x3F));
    put(0x80 | (codePoint & 0x3F));
  } else {
    put(0xF0 | codePoint >> 18);
    put(0x80 | (codePoint >> 12 & 0x3F));
    put(0x80 | (codePoint >> 6 & 0x3F));
    put(0x80 | (codePoint & 0x3F));
  }
}

size_t appendLossy(std::string_view bytes, bool last, std::string &text) {
  size_t at = 0;
  while (at < bytes.size()) {
    const size_t good = utf8Prefix(bytes.substr(at));
    text.append(bytes.data() + at, good);
    at += good;
    if (at == bytes.size())
      break;
    const Sequence sequence = sequenceAt(bytes, at);
    if (sequence.open && !last)
      break;
    text += "\xEF\xBF\xBD";
    at += sequence.bytes;
  }
  return at;
}

} // namespace headrace::text
