// SPDX-License-Identifier: Apache-2.0
//
// A plan as text, every field of it: two plans are the same if their texts are.
#pragma once

#include <string>

#include "absl/types/span.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::plan::test {

std::string textOf(const Plan &plan);

inline absl::Span<const std::byte> bytesOf(const std::string &text) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte *>(text.data()), text.size());
}

} // namespace headrace::plan::test
