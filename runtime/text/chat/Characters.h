// SPDX-License-Identifier: Apache-2.0
//
// What Unicode says of characters, by utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace headrace::text::jinja {

bool isPrintable(char32_t codePoint); // as str.isprintable()
bool isLetter(char32_t codePoint);
bool isDecimal(char32_t codePoint);
bool isCased(char32_t codePoint);

// With the mappings of one character to several, and the sigma at the end of a word.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text); // the first letter as a title has it, the rest lower
std::string title(std::string_view text);      // every run of letters so
bool isUpper(std::string_view text);
bool isLower(std::string_view text);

} // namespace headrace::text::jinja
