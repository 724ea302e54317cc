// SPDX-License-Identifier: Apache-2.0
//
// How a matrix is held: as elements, or as codes in groups that share a scale and a minimum. An encoding answers its
// own bytes; what it means is exact (docs/encodings.md):
//
//   q4:32   each 32 consecutive input features of an output feature: scale and minimum, F16 each, and 32 codes of 4
//           bits; value = code x scale + min in F32
//
// Codes of more kinds (signed ones, with a zero point, floating, of a table) are enumerators to come.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "runtime/base/DType.h"

namespace headrace::model {

// Values are stored in plan files: append, never renumber.
enum class ScaleKind : uint8_t { None = 0, F16 = 1 };
enum class ZeroKind : uint8_t { None = 0, MinF16 = 1 }; // MinF16: the value of code 0

inline constexpr int32_t kGroups[] = {32, 64, 128};
inline constexpr int32_t kDefaultGroup = 64;
inline constexpr int32_t kLargestGroup = 128;

struct Encoding {
  uint8_t codeBits = 32;
  int32_t group = 0; // input features that share a scale; 0: each element stands for itself
  ScaleKind scale = ScaleKind::None;
  ZeroKind zero = ZeroKind::None;
  DType element = DType::F32; // where each stands for itself

  constexpr Encoding() = default;
  constexpr Encoding(DType dtype) : codeBits(static_cast<uint8_t>(8 * dtypeBytes(dtype))), element(dtype) {}
  // Codes of `bits` with what is at the head of a group; q8 and q4 by default.
  static constexpr Encoding groups(int bits, int32_t group = kDefaultGroup, ScaleKind scale = ScaleKind::F16,
                                   ZeroKind zero = ZeroKind::MinF16) {
    Encoding out;
    out.codeBits = static_cast<uint8_t>(bits), out.group = group, out.scale = scale, out.zero = zero;
    return out;
  }
  constexpr bool packed() const { return group > 0; }
  constexpr uint32_t largestCode() const { return (1u << codeBits) - 1; }
  // Of a group: its scale, its minimum, its codes.
  constexpr uint64_t headerBytes() const {
    return (scale == ScaleKind::None ? 0 : 2) + (zero == ZeroKind::None ? 0 : 2);
  }
  constexpr uint64_t groupBytes() const { return headerBytes() + static_cast<uint64_t>(group) * codeBits / 8; }
  // Of a matrix of `rows` output and `cols` input features, or of so much of one: of packed ones a whole number of
  // groups. Saturates at 2^64 - 1.
  constexpr uint64_t bytes(int64_t rows, int64_t cols) const {
    const auto c = static_cast<uint64_t>(cols);
    return product(static_cast<uint64_t>(rows), packed() ? product(c / static_cast<uint64_t>(group), groupBytes())
                                                         : product(c, dtypeBytes(element)));
  }
  bool operator==(const Encoding &) const = default;

private:
  static constexpr uint64_t product(uint64_t a, uint64_t b) {
    uint64_t out = 0;
    return __builtin_mul_overflow(a, b, &out) ? ~uint64_t{0} : out;
  }
};

std::string encodingText(const Encoding &encoding); // "bf16", "q8", "q4:32"; groups of 64 go without saying
// Of what encodingText() makes; "q4:64" too.
std::optional<Encoding> encodingFromText(std::string_view text);
// One that there is: elements, or q8 and q4 in groups of 32, 64 or 128.
bool isEncoding(const Encoding &encoding);

// ---- the definition

// What a group's codes count from, and in what steps: F16.
struct GroupScale {
  uint16_t scale = 0, min = 0;
  bool operator==(const GroupScale &) const = default;
};

// The largest magnitude of what can be packed: F16's.
inline constexpr float kLargestPacked = 65504.0f;

// The values of a group, at most kLargestGroup, as codes of `bits`: none, and nothing is written, where one is NaN,
// infinite or beyond kLargestPacked.
std::optional<GroupScale> quantiseGroup(absl::Span<const float> values, int bits, uint8_t *codes);
// The value of a code: F32, exact but for one rounding of the sum.
float unpackedValue(uint32_t code, const GroupScale &scale);

} // namespace headrace::model
