// SPDX-License-Identifier: Apache-2.0
//
// What methods and filters of strings share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat/Heap.h"

namespace headrace::text::jinja {

// Without the characters of `which` (null: white space) at its beginning and end.
std::string_view stripped(Heap &heap, std::string_view text, const std::string *which, bool left, bool right);
// As str.splitlines(): at every line break that Unicode knows.
std::vector<std::string_view> splitLines(std::string_view text, bool keepEnds);
// The first `most` (below 0: all) occurrences replaced; an empty `what` stands between all characters.
std::string replaced(Heap &heap, std::string_view text, std::string_view what, std::string_view by, int64_t most);
// Appends to a text that grows, within the heap's limits.
void append(Heap &heap, std::string &text, std::string_view piece);
bool isDigitCharacter(char32_t codePoint); // as str.isdigit(): decimal digits, and those above and below a line

} // namespace headrace::text::jinja
