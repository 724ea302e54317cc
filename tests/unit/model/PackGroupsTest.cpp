// SPDX-License-Identifier: Apache-2.0
//
// Sixteen rows packed side by side are what each is by the definition (Encoding.h), in every type, and where it has
// corners.
#include "runtime/model/PackGroups.h"

#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "runtime/base/HalfFloat.h"
#include "tests/support/TwinWeights.h"

namespace headrace::model {
namespace {

constexpr int64_t kGroupsOfARow = 3;

using Rows = std::vector<std::vector<float>>; // 16

// As elements of a type, and what is left of the values there.
std::vector<std::vector<std::byte>> elementsOf(Rows &rows, DType dtype) {
  std::vector<std::vector<std::byte>> out;
  for (std::vector<float> &row : rows) {
    out.emplace_back(row.size() * dtypeBytes(dtype));
    narrowFromF32(dtype, row.data(), row.size(), out.back().data());
    widenToF32(dtype, out.back().data(), row.size(), row.data());
  }
  return out;
}

// Codes, scales and minima where WeightLayout.h has them.
void expectTheDefinition(const Rows &rows, const Encoding &e, const std::vector<std::byte> &panel) {
  const auto group = static_cast<size_t>(e.group);
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t g = 0; g * group < rows[r].size(); ++g) {
      std::vector<uint8_t> codes(group);
      const auto scale =
          quantiseGroup(absl::MakeConstSpan(rows[r]).subspan(g * group, group), e.codeBits, codes.data());
      ASSERT_TRUE(scale);
      const std::byte *at = panel.data() + g * kPanelRows * e.groupBytes();
      GroupScale held;
      std::memcpy(&held.scale, at + 2 * r, 2);
      std::memcpy(&held.min, at + 32 + 2 * r, 2);
      ASSERT_EQ(held, *scale) << r << " " << g;
      at += 64;
      for (size_t c = 0; c < group; ++c) {
        const auto byte = static_cast<unsigned>(e.codeBits == 8 ? at[c * 16 + r] : at[c * 8 + r % 8]);
        ASSERT_EQ(e.codeBits == 8 ? byte : r < 8 ? byte & 15 : byte >> 4, codes[c]) << r << " " << g << " " << c;
      }
    }
}

Rows zeros(const Encoding &e) { return {16, std::vector<float>(static_cast<size_t>(kGroupsOfARow * e.group))}; }

bool pack(const std::vector<std::vector<std::byte>> &elements, DType dtype, const Encoding &e,
          std::vector<std::byte> &panel) {
  const int64_t cols = kGroupsOfARow * e.group;
  panel.assign(e.bytes(kPanelRows, cols), std::byte{0xaa});
  const std::byte *rows[kPanelRows];
  for (int r = 0; r < kPanelRows; ++r)
    rows[r] = elements[static_cast<size_t>(r)].empty() ? nullptr : elements[static_cast<size_t>(r)].data();
  const bool packed = packGroups(rows, cols, dtype, e, MatrixOrder::Panel16, panel.data(), 0, 4);
  for (int atATime = 8; atATime <= packedRowsAtATime(); atATime *= 2) {
    std::vector<std::byte> other(panel.size(), std::byte{0xaa});
    EXPECT_EQ(packGroups(rows, cols, dtype, e, MatrixOrder::Panel16, other.data(), 0, atATime), packed) << atATime;
    EXPECT_TRUE(other == panel || !packed) << atATime;
  }
  return packed;
}

TEST(PackGroups, SixteenRowsAreWhatEachIs) {
  std::mt19937 random(20261129);
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16})
    for (const int bits : {4, 8})
      for (const int32_t group : kGroups)
        for (const float spread : {1e-9f, 1e-7f, 6e-5f, 0.02f, 1.0f, 20000.0f}) { // the first have no scale in F16
          SCOPED_TRACE(testing::Message() << dtypeName(dtype) << " " << bits << " " << group << " " << spread);
          const Encoding e = Encoding::groups(bits, group);
          Rows rows = zeros(e);
          for (std::vector<float> &row : rows)
            for (float &value : row)
              value = std::uniform_real_distribution<float>(-spread, spread * 1.5f)(random);
          std::vector<std::byte> panel;
          const auto elements = elementsOf(rows, dtype);
          ASSERT_TRUE(pack(elements, dtype, e, panel));
          expectTheDefinition(rows, e, panel);
        }
}

// Constant groups, both zeros, one value apart, halves of a step, the largest magnitudes.
TEST(PackGroups, CornersToo) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16})
    for (const int bits : {4, 8}) {
      SCOPED_TRACE(testing::Message() << dtypeName(dtype) << " " << bits);
      const Encoding e = Encoding::groups(bits, 32);
      const float most = dtype == DType::BF16 ? 65280.0f : 65504.0f;
      Rows rows = zeros(e);
      for (size_t c = 0; c < rows[0].size(); ++c) {
        rows[1][c] = -0.0f;
        rows[2][c] = c % 2 == 0 ? 0.0f : -0.0f;
        rows[3][c] = c % 2 == 0 ? -0.0f : 0.0f;
        rows[4][c] = 0.7f;
        rows[5][c] = -3.0f;
        rows[6][c] = c == 40 ? -1.0f : -0.0f;
        rows[7][c] = static_cast<float>(c % 32) / 2 - 0.5f; // steps of one and halves, in 4 bits
        rows[8][c] = c % 32 == 5 ? most : c % 32 == 6 ? -most : 0.0f;
        rows[9][c] = c % 32 == 0 ? 65024.0f : most;
        rows[10][c] = 0x1p-24f * static_cast<float>(c % 16); // subnormal in F16
        rows[11][c] = -0x1p-24f * static_cast<float>(c % 3);
      }
      auto elements = elementsOf(rows, dtype);
      elements[0].clear(); // padding
      std::vector<std::byte> panel;
      ASSERT_TRUE(pack(elements, dtype, e, panel));
      expectTheDefinition(rows, e, panel);
    }
}

TEST(PackGroups, WhatHasNoCodeIsRefusedInAnyRow) {
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16})
    for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(), 7e4f, -7e4f})
      for (size_t r = 0; r < 16; ++r) {
        const Encoding e = Encoding::groups(4, 64);
        Rows rows = zeros(e);
        rows[r][static_cast<size_t>(e.group) + 3 * r] = wrong; // 7e4 is infinite in F16
        std::vector<std::byte> panel;
        EXPECT_FALSE(pack(elementsOf(rows, dtype), dtype, e, panel)) << dtypeName(dtype) << " " << wrong << " " << r;
      }
}

} // namespace
} // namespace headrace::model
