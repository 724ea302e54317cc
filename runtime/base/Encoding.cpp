// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/Encoding.h"

#include <charconv>

#include "runtime/base/HalfFloat.h"
#include "runtime/base/Text.h"

namespace headrace::model {
namespace {

// To the nearest whole number, ties to even, whatever the rounding mode's library call costs: exact below 2^22.
inline float nearestWhole(float value) {
  constexpr float kShift = 0x1.8p23f;
  return (value + kShift) - kShift;
}

} // namespace

std::string encodingText(const Encoding &encoding) {
  if (!encoding.packed())
    return std::string(dtypeName(encoding.element));
  const std::string bits = cat("q", static_cast<int>(encoding.codeBits));
  return encoding.group == kDefaultGroup ? bits : cat(bits, ":", encoding.group);
}

std::optional<Encoding> encodingFromText(std::string_view text) {
  if (const std::optional<DType> dtype = dtypeFromName(text))
    return Encoding(*dtype);
  const size_t colon = text.find(':');
  const std::string_view bits = text.substr(0, colon);
  Encoding encoding = Encoding::groups(bits == "q8" ? 8 : 4);
  if (bits != "q8" && bits != "q4")
    return std::nullopt;
  if (colon != std::string_view::npos) {
    const char *end = text.data() + text.size();
    const std::from_chars_result read = std::from_chars(text.data() + colon + 1, end, encoding.group);
    if (read.ec != std::errc() || read.ptr != end)
      return std::nullopt;
  }
  return encoding.packed() && isEncoding(encoding) ? std::optional(encoding) : std::nullopt;
}

bool isEncoding(const Encoding &encoding) {
  if (!encoding.packed())
    return encoding == Encoding(encoding.element);
  return (encoding.codeBits == 8 || encoding.codeBits == 4) &&
         std::find(std::begin(kGroups), std::end(kGroups), encoding.group) != std::end(kGroups) &&
         encoding == Encoding::groups(encoding.codeBits, encoding.group);
}

std::optional<GroupScale> quantiseGroup(absl::Span<const float> values, int bits, uint8_t *codes) {
  if (values.empty())
    return GroupScale{};
  // A NaN is neither above nor below: looked for by what it makes of zero.
  float lo = values.front() + 0.0f, hi = lo, wrong = 0.0f; // + 0: of -0.0
  for (const float value : values) {
    lo = value < lo ? value : lo;
    hi = value > hi ? value : hi;
    wrong += value * 0.0f;
  }
  if (!(wrong == 0.0f) || lo < -kLargestPacked || hi > kLargestPacked)
    return std::nullopt;
  const auto most = static_cast<float>((1 << bits) - 1);
  const GroupScale out{f32ToF16((hi - lo) / most), f32ToF16(lo + 0.0f)};
  const float scale = f16ToF32(out.scale), min = f16ToF32(out.min);
  for (size_t i = 0; i < values.size(); ++i) {
    // Clamped first: the bounds are whole, so it is the same, and what is rounded is small.
    float code = scale == 0.0f ? 0.0f : (values[i] - min) / scale;
    code = code > 0.0f ? code : 0.0f;
    code = code < most ? code : most;
    codes[i] = static_cast<uint8_t>(nearestWhole(code));
  }
  return out;
}

float unpackedValue(uint32_t code, const GroupScale &scale) {
  return static_cast<float>(code) * f16ToF32(scale.scale) + f16ToF32(scale.min);
}

} // namespace headrace::model
