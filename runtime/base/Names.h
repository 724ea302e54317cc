// SPDX-License-Identifier: Apache-2.0
//
// What may be the name of a model, a device or a placement.
#pragma once

#include <cstddef>
#include <string_view>

namespace headrace::model {

// A name that is printed: not empty, short, and nothing in it that a terminal would obey.
inline constexpr size_t kLongestName = 256; // bytes
inline bool isName(std::string_view text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return false;
  return !text.empty() && text.size() <= kLongestName;
}
inline constexpr std::string_view kNameExpected = "1 to 256 bytes without control characters";

} // namespace headrace::model
