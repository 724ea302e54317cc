// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/Encoding.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "runtime/base/HalfFloat.h"

namespace headrace::model {
namespace {

using testing::ElementsAre;

TEST(Encoding, AnswersItsOwnBytes) {
  EXPECT_EQ(Encoding(DType::F32).bytes(10, 100), 4000u);
  EXPECT_EQ(Encoding(DType::F16).bytes(10, 100), 2000u);
  EXPECT_EQ(Encoding(DType::BF16).bytes(10, 100), 2000u);
  // 16 x 640 of groups of 64: 160 groups of 4 bytes, and a byte or half a byte an element.
  EXPECT_EQ(Encoding::groups(8).bytes(16, 640), 160u * 4 + 10240);
  EXPECT_EQ(Encoding::groups(4).bytes(16, 640), 160u * 4 + 5120);
  EXPECT_EQ(Encoding::groups(4, 32).bytes(16, 640), 320u * 4 + 5120);
  EXPECT_EQ(Encoding::groups(8, 128).bytes(16, 640), 80u * 4 + 10240);
  // 0.2813 and 0.5313 of 16 bits.
  EXPECT_EQ(Encoding::groups(4).bytes(64, 64) * 32, Encoding(DType::F16).bytes(64, 64) * 9);
  EXPECT_EQ(Encoding::groups(8).bytes(64, 64) * 32, Encoding(DType::F16).bytes(64, 64) * 17);
}

TEST(Encoding, PrintsAndParses) {
  for (const char *text : {"f32", "f16", "bf16", "q8", "q4", "q8:32", "q4:32", "q8:128", "q4:128"}) {
    const std::optional<Encoding> encoding = encodingFromText(text);
    ASSERT_TRUE(encoding) << text;
    EXPECT_TRUE(isEncoding(*encoding)) << text;
    EXPECT_EQ(encodingText(*encoding), text);
  }
  EXPECT_EQ(encodingFromText("q4:64"), Encoding::groups(4));
  EXPECT_FALSE(encodingFromText("f16")->packed());
  for (const char *text : {"", "q", "q3", "q16", "q4:", "q4:16", "q4:0", "q4:-64", "q4:256", "q4:64:64", "q4 ", "q8x"})
    EXPECT_FALSE(encodingFromText(text)) << text;
}

TEST(Encoding, KnowsWhatThereIs) {
  Encoding q4 = Encoding::groups(4);
  q4.scale = ScaleKind::None;
  EXPECT_FALSE(isEncoding(q4));
  q4 = Encoding::groups(4);
  q4.zero = ZeroKind::None;
  EXPECT_FALSE(isEncoding(q4));
  EXPECT_FALSE(isEncoding(Encoding::groups(3)));
  EXPECT_FALSE(isEncoding(Encoding::groups(4, 48)));
  Encoding f16 = Encoding(DType::F16);
  f16.codeBits = 32;
  EXPECT_FALSE(isEncoding(f16));
}

// Values of a group and what they come to: scale, min, codes.
struct Packed {
  std::optional<GroupScale> scale;
  std::vector<uint8_t> codes;
  float min() const { return f16ToF32(scale->min); }
  float step() const { return f16ToF32(scale->scale); }
  float value(size_t i) const { return unpackedValue(codes[i], *scale); }
};
Packed pack(const std::vector<float> &values, int bits) {
  Packed out;
  out.codes.assign(values.size(), 0xee);
  out.scale = quantiseGroup(values, bits, out.codes.data());
  return out;
}

TEST(Quantise, RoundNumbers) {
  // -3 to 12 in 15 steps of 1; 0.5 and 2.5 above the least are ties: to even.
  const Packed q4 = pack({-3, 12, 0, -2.5f, -0.5f, 11.75f}, 4);
  ASSERT_TRUE(q4.scale);
  EXPECT_EQ(q4.step(), 1.0f);
  EXPECT_EQ(q4.min(), -3.0f);
  EXPECT_THAT(q4.codes, ElementsAre(0, 15, 3, 0, 2, 15));
  EXPECT_EQ(q4.value(2), 0.0f);
  // -1 to 1.55 in 255 steps of 0.01, which F16 has as 0.01000213623046875.
  const Packed q8 = pack({-1.0f, 1.55f, 0.0f}, 8);
  ASSERT_TRUE(q8.scale);
  EXPECT_EQ(q8.step(), 0.01000213623046875f);
  EXPECT_THAT(q8.codes, ElementsAre(0, 255, 100));
  EXPECT_EQ(q8.value(2), 0.000213623046875f);
}

TEST(Quantise, AMinimumThatF16RoundsUpIsClampedTo) {
  // F16 has 2048 and 2050 and what lies between as the even neighbour: 2049 is 2048, 2051 is 2052.
  const Packed up = pack({2051, 2066}, 4);
  ASSERT_TRUE(up.scale);
  EXPECT_EQ(up.min(), 2052.0f);
  EXPECT_THAT(up.codes, ElementsAre(0, 14));
  const Packed down = pack({2049, 2064}, 4);
  EXPECT_EQ(down.min(), 2048.0f);
  EXPECT_THAT(down.codes, ElementsAre(1, 15)); // 16 steps above the least
}

TEST(Quantise, ConstantGroupsAreTheirValue) {
  for (const int bits : {4, 8}) {
    const Packed zero = pack({0, 0, 0}, bits);
    EXPECT_EQ(zero.scale, (GroupScale{0, 0}));
    EXPECT_THAT(zero.codes, ElementsAre(0, 0, 0));
    EXPECT_EQ(std::signbit(zero.value(0)), false);
    // -0.0 counts as +0.0, wherever it stands.
    EXPECT_EQ(pack({-0.0f, 0.0f}, bits).scale, (GroupScale{0, 0}));
    EXPECT_EQ(pack({0.0f, -0.0f}, bits).scale, (GroupScale{0, 0}));
    EXPECT_EQ(pack({1.0f, -0.0f}, bits).scale->min, 0);
    const Packed half = pack({-0.5f, -0.5f}, bits);
    EXPECT_THAT(half.codes, ElementsAre(0, 0));
    EXPECT_EQ(half.value(1), -0.5f);
  }
}

TEST(Quantise, WeightsSoSmallThatTheScaleIsZeroAreTheirMinimum) {
  const Packed tiny = pack({0.0f, 1e-8f}, 4); // F16's least is 6e-8
  ASSERT_TRUE(tiny.scale);
  EXPECT_EQ(*tiny.scale, (GroupScale{0, 0}));
  EXPECT_THAT(tiny.codes, ElementsAre(0, 0));
}

TEST(Quantise, RefusesWhatIsNotFiniteOrBeyondF16) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float wrong : {inf, -inf, nan, -nan, 7e4f, -7e4f, 65504.01f})
    for (size_t at = 0; at < 3; ++at) {
      std::vector<float> values = {1, 2, 3};
      values[at] = wrong;
      const Packed packed = pack(values, 8);
      EXPECT_FALSE(packed.scale) << wrong << " at " << at;
      EXPECT_THAT(packed.codes, ElementsAre(0xee, 0xee, 0xee));
    }
  EXPECT_TRUE(pack({-65504, 65504}, 4).scale);
  EXPECT_TRUE(pack({-65504, 65504}, 8).scale);
}

RC_GTEST_PROP(Quantise, IsWithinItsBound, ()) {
  const int bits = *rc::gen::element(4, 8);
  const auto size = *rc::gen::element<size_t>(32, 64, 128);
  const float middle = static_cast<float>(*rc::gen::inRange(-3000, 3000)) / 1000;
  const float spread = std::ldexp(1.0f, *rc::gen::inRange(-22, 13));
  const auto whole = *rc::gen::container<std::vector<int>>(size, rc::gen::inRange(-32768, 32768));
  std::vector<float> values;
  for (const int w : whole)
    values.push_back(middle * spread + spread * static_cast<float>(w) / 32768);
  const Packed packed = pack(values, bits);
  RC_ASSERT(packed.scale.has_value());
  const double most = (1 << bits) - 1;
  for (size_t i = 0; i < size; ++i) {
    const double value = packed.value(i);
    const double bound = packed.step() / 2.0 + std::abs(packed.min()) * 0x1p-11 + most * 0x1p-25 +
                         std::abs(std::nextafter(packed.value(i), 1e30f) - packed.value(i));
    RC_ASSERT(std::abs(value - static_cast<double>(values[i])) <= bound);
    // The product is exact: fused or not, the same bits.
    RC_ASSERT(std::fma(static_cast<float>(packed.codes[i]), packed.step(), packed.min()) == packed.value(i));
    RC_ASSERT(packed.codes[i] <= most);
  }
}

} // namespace
} // namespace headrace::model
