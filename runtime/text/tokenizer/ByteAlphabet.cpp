// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/tokenizer/ByteAlphabet.h"

#include <array>

#include "runtime/text/tokenizer/Utf8.h"

namespace headrace::text {
namespace {

struct Alphabet {
  std::array<uint16_t, 256> letters;
  std::array<int16_t, 512> bytes;
};

constexpr Alphabet makeAlphabet() {
  Alphabet alphabet{};
  for (int16_t &byte : alphabet.bytes)
    byte = -1;
  uint16_t next = 256;
  for (uint16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    alphabet.letters[byte] = printable ? byte : next++;
    alphabet.bytes[alphabet.letters[byte]] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = makeAlphabet();

} // namespace

uint32_t byteLetter(uint8_t byte) { return kAlphabet.letters[byte]; }

int byteOfLetter(uint32_t codePoint) { return codePoint < kAlphabet.bytes.size() ? kAlphabet.bytes[codePoint] : -1; }

void appendLetters(std::string_view bytes, std::string &letters) {
  for (const char byte : bytes)
    appendUtf8(byteLetter(static_cast<uint8_t>(byte)), letters);
}

bool appendBytesOfLetters(std::string_view letters, std::string &bytes) {
  const size_t before = bytes.size();
  for (size_t at = 0; at < letters.size();) {
    const CodePoint letter = codePointAt(letters, at);
    const int byte = byteOfLetter(letter.value);
    if (byte < 0) {
      bytes.resize(before);
      return false;
    }
    bytes.push_back(static_cast<char>(byte));
    at += letter.bytes;
  }
  return true;
}

} // namespace headrace::text
