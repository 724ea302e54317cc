// SPDX-License-Identifier: Apache-2.0
//
// Bytes that should be UTF-8 (Unicode 15, 3.9: no overlong forms, no surrogates, nothing above U+10FFFF).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headrace::model {

// Bytes of the character at the beginning of `text`; 0 where there is none, and then `bad`, where asked for, is how
// many bytes U+FFFD stands for: the longest beginning of a character that they are, one byte at least. An empty text
// has none.
size_t utf8Length(std::string_view text, size_t *bad = nullptr);
// Where the first byte stands that begins no character; npos: the whole is UTF-8.
size_t invalidUtf8(std::string_view text);
// With U+FFFD for what is not.
std::string lossyUtf8(std::string_view text);

} // namespace headrace::model
