// SPDX-License-Identifier: Apache-2.0
//
// Text as Python's str has it, over UTF-8 that is known to be valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headrace::text::jinja {

// The code point at `offset`, which moves behind it.
char32_t nextCodePoint(std::string_view text, size_t &offset);
// The one that ends at `offset`, which moves before it.
char32_t previousCodePoint(std::string_view text, size_t &offset);
void appendCodePoint(std::string &text, char32_t codePoint);
int64_t countCodePoints(std::string_view text);
// The byte offset of code point `index`, at most text.size().
size_t offsetOf(std::string_view text, int64_t index);

bool isSpace(char32_t codePoint);
std::string_view stripLeft(std::string_view text);
std::string_view stripRight(std::string_view text);
inline std::string_view strip(std::string_view text) { return stripLeft(stripRight(text)); }

// memmem: linear in the text, whatever stands in it.
size_t findText(std::string_view text, std::string_view what, size_t from = 0);

std::string reprOfText(std::string_view text);
std::string reprOfFloat(double value);

// At most `most` bytes, without a control character or half a character: for messages.
std::string printable(std::string_view text, size_t most);

} // namespace headrace::text::jinja
