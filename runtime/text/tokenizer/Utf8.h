// SPDX-License-Identifier: Apache-2.0
//
// UTF-8: checking it, walking it, and what becomes of bytes that are not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headrace::text {

// How many bytes of the text are UTF-8: all of them, or those before the first one that is not.
size_t utf8Prefix(std::string_view text);

struct CodePoint {
  uint32_t value;
  uint32_t bytes;
};

// The character at `at`, of text that is UTF-8.
inline CodePoint codePointAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  const uint32_t first = byte(0);
  if (first < 0x80)
    return {first, 1};
  if (first < 0xE0)
    return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0)
    return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// The character that ends before `end`, which is not 0.
CodePoint codePointBefore(std::string_view text, size_t end);

void appendUtf8(uint32_t codePoint, std::string &text);

// Appends the bytes, each longest part of a character that goes no further as one U+FFFD, as Rust's from_utf8_lossy()
// does. Answers how many bytes were taken: unless `last`, the beginning of a character at the end is left.
size_t appendLossy(std::string_view bytes, bool last, std::string &text);

} // namespace headrace::text
