// SPDX-License-Identifier: Apache-2.0
//
// The shapes and hardware profiles of examples/, as the program carries them; the source is written by
// cmake/EmbedExamples.cmake when it is built.
#pragma once

#include <string_view>

#include "absl/types/span.h"

namespace headrace::model {

struct ShippedExample {
  std::string_view kind; // "models", "hardware"
  std::string_view name; // without .toml
  std::string_view text; // of the file
};

// By kind, then by name, ascending.
absl::Span<const ShippedExample> shippedExamples();

} // namespace headrace::model
