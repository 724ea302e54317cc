// SPDX-License-Identifier: Apache-2.0
//
// Conversions between F32 and the two half formats, one value at a time, without instructions for them. Narrowing
// rounds to nearest, ties to even; NaN stays NaN (quiet); F16 overflow becomes infinity and small values become
// subnormal. Functions are static so that files compiled for different instruction sets never share one copy.
#pragma once

#include <cstdint>
#include <cstring>

namespace headrace::kernels {

static inline float floatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

static inline uint32_t bitsFromFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float floatFromBf16(uint16_t half) { return floatFromBits(static_cast<uint32_t>(half) << 16); }

static inline uint16_t bf16FromFloat(float value) {
  uint32_t bits = bitsFromFloat(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>((bits >> 16) | 0x40u); // NaN: keep sign and top payload bits, set the quiet bit
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float floatFromF16(uint16_t half) {
  uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  uint32_t exponent = (half >> 10) & 0x1fu;
  uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1f)
    return floatFromBits(sign | 0x7f800000u | (mantissa << 13) | (mantissa != 0 ? 0x400000u : 0u));
  if (exponent != 0)
    return floatFromBits(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Zero or subnormal: mantissa * 2^-24, exact in F32.
  float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return floatFromBits(sign | bitsFromFloat(magnitude));
}

static inline uint16_t f16FromFloat(float value) {
  uint32_t bits = bitsFromFloat(value);
  uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) // 65520 and above round to infinity
    return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude >= 0x38800000u) { // 2^-14: the smallest normal number
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
  // Subnormal: adding 0.5 leaves magnitude / 2^-24, rounded to nearest even, in the low mantissa bits.
  float shifted = floatFromBits(magnitude) + 0.5f;
  return static_cast<uint16_t>(sign | (bitsFromFloat(shifted) - 0x3f000000u));
}

} // namespace headrace::kernels
