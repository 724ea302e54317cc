// SPDX-License-Identifier: Apache-2.0
//
// GPT-2's alphabet: a printable character for each byte, so that tokens of any bytes can stand in a JSON file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace::text {

uint32_t byteLetter(uint8_t byte);    // the character that stands for a byte
int byteOfLetter(uint32_t codePoint); // -1: stands for none
void appendLetters(std::string_view bytes, std::string &letters);
// The bytes of a token whose characters all stand for one; false, with `bytes` as it was, where one does not.
bool appendBytesOfLetters(std::string_view letters, std::string &bytes);

} // namespace headrace::text
