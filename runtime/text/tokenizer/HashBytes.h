// SPDX-License-Identifier: Apache-2.0
//
// Hashes for the tables of the tokenizer: of words, and of pairs of ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace headrace::text {

// 64 bits, of which the low ones choose a slot and the high ones are compared.
inline uint64_t mixBits(uint64_t value) {
  value *= 0x9E3779B97F4A7C15u;
  value ^= value >> 32;
  value *= 0xD6E8FEB86659FD93u;
  return value ^ value >> 29;
}

inline uint64_t hashBytes(std::string_view bytes) {
  uint64_t hash = bytes.size() * 0xA0761D6478BD642Fu;
  const char *at = bytes.data();
  size_t left = bytes.size();
  uint64_t word;
  for (; left >= 8; at += 8, left -= 8) {
    std::memcpy(&word, at, 8);
    hash = mixBits(hash ^ word);
  }
  word = 0;
  if (left > 0)
    std::memcpy(&word, at, left);
  return mixBits(hash ^ word);
}

} // namespace headrace::text
