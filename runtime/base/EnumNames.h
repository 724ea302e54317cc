// SPDX-License-Identifier: Apache-2.0
//
// Enumerators and their names in files and on command lines, from one table for both ways.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "absl/types/span.h"

namespace headrace::model {

template <class Enum> using Names = absl::Span<const std::pair<Enum, std::string_view>>;

template <class Enum> std::string_view nameOf(Names<Enum> names, Enum value) {
  for (const auto &[candidate, name] : names)
    if (candidate == value)
      return name;
  return "?";
}

template <class Enum> std::optional<Enum> fromName(Names<Enum> names, std::string_view text) {
  for (const auto &[value, name] : names)
    if (name == text)
      return value;
  return std::nullopt;
}

} // namespace headrace::model
