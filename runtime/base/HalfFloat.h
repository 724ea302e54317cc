// SPDX-License-Identifier: Apache-2.0
//
// The two 16-bit element types of checkpoints, to and from F32. Branch-free, so that loops over them vectorise.
//
//   F16   1 sign, 5 exponent, 10 fraction bits (IEEE 754 binary16)
//   BF16  1 sign, 8 exponent,  7 fraction bits: the upper half of an F32
//
// Widening is exact. Narrowing rounds to nearest, ties to even; a NaN stays a (quiet) NaN, what exceeds F16's largest
// finite value by half a step becomes infinity.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/base/DType.h"

namespace headrace::model {

inline float f16ToF32(uint16_t bits) {
  // Normal numbers: move exponent and fraction into place and multiply the excess exponent away. Subnormal ones: put
  // the fraction under the exponent of 0.5 and subtract 0.5, which normalises it.
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  const uint32_t sign = word & 0x80000000u;
  const uint32_t twice = word + word;
  const float normal = std::bit_cast<float>((twice >> 4) + (0xE0u << 23)) * 0x1.0p-112f;
  const float subnormal = std::bit_cast<float>((twice >> 17) | (126u << 23)) - 0.5f;
  const uint32_t magnitude = twice < (1u << 27) ? std::bit_cast<uint32_t>(subnormal) : std::bit_cast<uint32_t>(normal);
  return std::bit_cast<float>(sign | magnitude);
}

inline uint16_t f32ToF16(float value) {
  // Adding a power of two chosen from the exponent makes the hardware round the fraction at F16's last bit.
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = word & 0x80000000u;
  const uint32_t twice = word + word;
  float base = (std::bit_cast<float>(word & 0x7FFFFFFFu) * 0x1.0p+112f) * 0x1.0p-110f;
  const uint32_t exponent = twice & 0xFF000000u;
  const uint32_t small = -static_cast<uint32_t>(exponent < 0x71000000u); // all ones: subnormal in F16
  const uint32_t bias = (exponent & ~small) | (0x71000000u & small);
  base = std::bit_cast<float>((bias >> 1) + 0x07800000u) + base;
  const uint32_t rounded = std::bit_cast<uint32_t>(base);
  const uint32_t finite = ((rounded >> 13) & 0x7C00u) + (rounded & 0x0FFFu);
  // Masks, not conditions: a compiler that minds traps does not turn those into straight code.
  const uint32_t nan = -static_cast<uint32_t>(twice > 0xFF000000u);
  return static_cast<uint16_t>((sign >> 16) | (finite & ~nan) | (0x7E00u & nan));
}

inline float bf16ToF32(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t f32ToBf16(float value) {
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
  const uint32_t nan = (word >> 16) | 0x40u;
  return static_cast<uint16_t>((word & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

// `count` elements of `type` at `source` (any alignment) as F32 at `target`.
inline void widenToF32(DType type, const std::byte *source, size_t count, float *target) {
  if (count == 0)
    return;
  if (type == DType::F32) {
    std::memcpy(target, source, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, source + 2 * i, sizeof(bits));
    target[i] = type == DType::F16 ? f16ToF32(bits) : bf16ToF32(bits);
  }
}

// `count` F32 numbers as elements of `type` at `target` (any alignment), rounded to nearest, ties to even.
inline void narrowFromF32(DType type, const float *source, size_t count, std::byte *target) {
  if (count == 0)
    return;
  if (type == DType::F32) {
    std::memcpy(target, source, count * sizeof(float));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = type == DType::F16 ? f32ToF16(source[i]) : f32ToBf16(source[i]);
    std::memcpy(target + 2 * i, &bits, sizeof(bits));
  }
}

} // namespace headrace::model
