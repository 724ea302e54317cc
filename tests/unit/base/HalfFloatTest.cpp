// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/HalfFloat.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace headrace::model {
namespace {

// By the definition: (-1)^s * 2^(e - 15) * 1.f, subnormal 2^-14 * 0.f.
double f16ByDefinition(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31)
    return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(F16, WidensEveryValueExactly) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double expected = f16ByDefinition(static_cast<uint16_t>(bits));
    const float widened = f16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(widened)) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(widened), expected) << bits;
      EXPECT_EQ(std::signbit(widened), (bits & 0x8000) != 0) << bits;
    }
  }
}

TEST(F16, NarrowingIsTheInverseOfWidening) {
  for (uint32_t bits = 0; bits < 65536; ++bits)
    if (!std::isnan(f16ToF32(static_cast<uint16_t>(bits)))) {
      EXPECT_EQ(f32ToF16(f16ToF32(static_cast<uint16_t>(bits))), bits);
    }
}

TEST(F16, RoundsToNearestWithTiesToEven) {
  for (uint16_t bits = 0; bits < 0x7BFF; ++bits) { // every finite neighbouring pair
    const double low = f16ByDefinition(bits), high = f16ByDefinition(static_cast<uint16_t>(bits + 1));
    const float middle = static_cast<float>((low + high) / 2); // exact: one more bit than F16 has
    EXPECT_EQ(f32ToF16(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    EXPECT_EQ(f32ToF16(std::nextafterf(middle, -1)), bits) << bits;
    EXPECT_EQ(f32ToF16(std::nextafterf(middle, 1e9f)), bits + 1) << bits;
  }
}

TEST(F16, OverflowsToInfinityAndKeepsNan) {
  EXPECT_EQ(f32ToF16(65504.0f), 0x7BFF);  // the largest finite value
  EXPECT_EQ(f32ToF16(65519.99f), 0x7BFF); // below half a step above it
  EXPECT_EQ(f32ToF16(65520.0f), 0x7C00);
  EXPECT_EQ(f32ToF16(-1e30f), 0xFC00);
  EXPECT_TRUE(std::isnan(f16ToF32(f32ToF16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(f32ToF16(1e-30f), 0);
}

TEST(Bf16, WidensToTheUpperHalf) {
  EXPECT_EQ(bf16ToF32(0x3F80), 1.0f);
  EXPECT_EQ(bf16ToF32(0xC040), -3.0f);
  for (uint32_t bits = 0; bits < 65536; ++bits)
    if (!std::isnan(bf16ToF32(static_cast<uint16_t>(bits)))) {
      EXPECT_EQ(f32ToBf16(bf16ToF32(static_cast<uint16_t>(bits))), bits);
    }
}

TEST(Bf16, RoundsToNearestWithTiesToEven) {
  EXPECT_EQ(f32ToBf16(std::bit_cast<float>(0x3F808000u)), 0x3F80); // a tie, even below
  EXPECT_EQ(f32ToBf16(std::bit_cast<float>(0x3F818000u)), 0x3F82); // a tie, even above
  EXPECT_EQ(f32ToBf16(std::bit_cast<float>(0x3F808001u)), 0x3F81);
  EXPECT_EQ(f32ToBf16(std::bit_cast<float>(0x3F817FFFu)), 0x3F81);
  EXPECT_EQ(f32ToBf16(std::numeric_limits<float>::max()), 0x7F80); // rounds up to infinity
  EXPECT_TRUE(std::isnan(bf16ToF32(f32ToBf16(std::bit_cast<float>(0x7F800001u)))));
}

TEST(WidenToF32, ReadsUnalignedSourcesOfEachType) {
  // One byte in front, so that every element is unaligned.
  const std::vector<uint8_t> f16 = {0xEE, 0x00, 0x3C, 0x00, 0xC0};
  const std::vector<uint8_t> bf16 = {0xEE, 0x80, 0x3F, 0x00, 0xC0};
  const std::vector<uint8_t> f32 = {0xEE, 0x00, 0x00, 0x80, 0x3F, 0x00, 0x00, 0x00, 0xC0};
  for (const auto &[type, bytes] : {std::pair{DType::F16, f16}, {DType::BF16, bf16}, {DType::F32, f32}}) {
    float values[2] = {};
    widenToF32(type, reinterpret_cast<const std::byte *>(bytes.data() + 1), 2, values);
    EXPECT_EQ(values[0], 1.0f) << dtypeName(type);
    EXPECT_EQ(values[1], -2.0f) << dtypeName(type);
  }
}

} // namespace
} // namespace headrace::model
