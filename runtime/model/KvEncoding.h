// SPDX-License-Identifier: Apache-2.0
//
// How caches are held: elements, or "q8" and "q4" in groups inside one token's head, so that a row is packed once, as
// it is appended. The group follows from the head size and is not stated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/string_view.h"
#include "runtime/base/Encoding.h"

namespace headrace::model {

inline constexpr int32_t kKvGroups[] = {64, 32}; // the first that divides the head size
inline constexpr absl::string_view kKvEncodings = "\"auto\", \"f32\", \"f16\", \"bf16\", \"q8\" or \"q4\"";

std::string kvEncodingText(const Encoding &encoding); // "f16", "q8"
// Of what kvEncodingText() makes; the group of a packed one is that of the largest heads until kvEncodingFor() says.
std::optional<Encoding> kvEncodingFromText(std::string_view text);
// The encoding with the group that heads of this size take; none where no group divides it.
std::optional<Encoding> kvEncodingFor(const Encoding &encoding, int64_t headDim);
// Why heads of this size cannot have it: what follows "...: expected "; empty where they can.
std::string kvEncodingRefusal(const Encoding &encoding, int64_t headDim);

} // namespace headrace::model
