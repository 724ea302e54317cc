// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <string_view>

namespace headrace::algorithms {

// Of digits alone, the whole of `text`; false where it is none, or too large for the type.
template <typename Number> bool parseNumber(std::string_view text, Number &number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty() && text[0] != '-';
}

} // namespace headrace::algorithms
