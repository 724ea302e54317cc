// SPDX-License-Identifier: Apache-2.0
//
// Putting messages together. Debian builds absl for C++14, where absl::string_view is a type of its own that
// std::string_view does not convert to; cat() and escaped() take both.
#pragma once

#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace headrace::model {

namespace detail {
template <class T> const T &piece(const T &value) { return value; }
inline absl::string_view piece(std::string_view value) { return {value.data(), value.size()}; }
} // namespace detail

// absl::StrCat of strings, string views of either kind, and numbers.
template <class... Pieces> std::string cat(const Pieces &...pieces) { return absl::StrCat(detail::piece(pieces)...); }

// At most `most` bytes of untrusted text, control characters and double quotes escaped.
inline std::string escaped(std::string_view text, size_t most = 200) {
  return absl::StrReplaceAll(absl::Utf8SafeCEscape(detail::piece(text.substr(0, most))), {{"\\'", "'"}});
}

} // namespace headrace::model
