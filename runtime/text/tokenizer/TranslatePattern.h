// SPDX-License-Identifier: Apache-2.0
//
// A pattern as Oniguruma reads it, the `tokenizers` package's engine, written as PCRE2 reads it.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace headrace::text {

// Where the two differ (\h, \s, {,3}, ^), the pattern that matches the same; what letters and numbers are is Unicode
// 16's. InvalidArgument names what has no such pattern: back references, word boundaries, intersections of classes.
absl::StatusOr<std::string> translatePattern(std::string_view pattern);

} // namespace headrace::text
