// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/PackMatrix.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "runtime/base/HalfFloat.h"

namespace headrace::model {
namespace {

// Element (r, c) gets the value 100 * r + c; columns below, at and above the vector width, rows unaligned.
template <class Element> void checkPanel(int64_t cols, int64_t rows, DType dtype) {
  std::vector<std::byte> source(1 + static_cast<size_t>(rows * cols) * sizeof(Element));
  const std::byte *pointers[kPanelRows] = {};
  for (int64_t r = 0; r < rows; ++r) {
    pointers[r] = source.data() + 1 + static_cast<size_t>(r * cols) * sizeof(Element);
    for (int64_t c = 0; c < cols; ++c) {
      const Element value = static_cast<Element>(100 * r + c + 1);
      std::memcpy(const_cast<std::byte *>(pointers[r]) + static_cast<size_t>(c) * sizeof(Element), &value,
                  sizeof(value));
    }
  }
  std::vector<Element> packed(static_cast<size_t>(cols * kPanelRows) + 1, Element{0x5A});
  EXPECT_TRUE(packPanel(pointers, cols, dtype, reinterpret_cast<std::byte *>(packed.data())));
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < kPanelRows; ++r)
      ASSERT_EQ(packed[static_cast<size_t>(c * kPanelRows + r)], r < rows ? static_cast<Element>(100 * r + c + 1) : 0)
          << "row " << r << " column " << c << " of " << cols;
  EXPECT_EQ(packed.back(), Element{0x5A}) << "wrote behind the panel";
}

TEST(PackPanel, TransposesTwoByteElements) {
  for (int64_t cols : {1, 3, 7, 8, 9, 16, 31, 100})
    for (int64_t rows : {1, 11, 16})
      for (DType dtype : {DType::F16, DType::BF16})
        checkPanel<uint16_t>(cols, rows, dtype);
}

TEST(PackPanel, TransposesFourByteElements) {
  for (int64_t cols : {1, 3, 4, 5, 8, 31, 100})
    for (int64_t rows : {1, 11, 16})
      checkPanel<uint32_t>(cols, rows, DType::F32);
}

std::string encoded(float value, DType dtype) {
  std::string bytes(dtypeBytes(dtype), '\0');
  const uint32_t word = std::bit_cast<uint32_t>(value);
  const uint16_t half = dtype == DType::F16 ? f32ToF16(value) : f32ToBf16(value);
  std::memcpy(bytes.data(), dtype == DType::F32 ? static_cast<const void *>(&word) : &half, bytes.size());
  return bytes;
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One value in each place of panels and runs of several lengths, among others of that type's largest and smallest.
TEST(PackPanel, TellsWhetherAllValuesAreFinite) {
  for (DType dtype : {DType::F32, DType::F16, DType::BF16}) {
    const float largest = dtype == DType::F16 ? 65504.0f : dtype == DType::F32 ? 3.4028235e38f : 3.3895314e38f;
    for (int64_t cols : {1, 4, 8, 13}) {
      std::string elements;
      for (int64_t i = 0; i < kPanelRows * cols; ++i)
        elements += encoded(i % 3 == 0 ? largest : i % 3 == 1 ? -largest : 6e-8f, dtype);
      const auto check = [&](bool finite, uint64_t count, size_t first) {
        const auto *data = reinterpret_cast<const std::byte *>(elements.data());
        const std::byte *rows[kPanelRows];
        for (int64_t r = 0; r < kPanelRows; ++r)
          rows[r] = data + static_cast<size_t>(r * cols) * dtypeBytes(dtype);
        std::string panel(elements.size(), '\0'), copied(elements.size(), '\0');
        EXPECT_EQ(packPanel(rows, cols, dtype, reinterpret_cast<std::byte *>(panel.data())), finite);
        EXPECT_EQ(copyElements({data, elements.size()}, dtype, reinterpret_cast<std::byte *>(copied.data())), finite);
        EXPECT_EQ(copied, elements);
        const NotFinite found = findNotFinite({data, elements.size()}, dtype);
        EXPECT_EQ(found.count, count);
        EXPECT_EQ(found.first, first);
      };
      check(true, 0, 0);
      for (size_t place = 0; place < static_cast<size_t>(kPanelRows * cols); ++place)
        for (float wrong : {kInfinity, -kInfinity, std::nanf(""), -std::nanf("")}) {
          const std::string kept = elements;
          elements.replace(place * dtypeBytes(dtype), dtypeBytes(dtype), encoded(wrong, dtype));
          check(false, 1, place);
          elements = kept;
        }
    }
  }
}

// Longer than what is copied at once: the last elements count too.
TEST(CopyElements, LooksAtAllOfALongRun) {
  std::string elements(100'001 * 2, '\0'), copied(elements.size(), 'x');
  const auto copy = [&] {
    return copyElements({reinterpret_cast<const std::byte *>(elements.data()), elements.size()}, DType::F16,
                        reinterpret_cast<std::byte *>(copied.data()));
  };
  EXPECT_TRUE(copy());
  EXPECT_EQ(copied, elements);
  for (size_t place : {0, 8191, 8192, 50'000, 100'000}) {
    const std::string kept = elements;
    elements.replace(place * 2, 2, encoded(-kInfinity, DType::F16));
    EXPECT_FALSE(copy()) << place;
    EXPECT_EQ(copied, elements);
    elements = kept;
  }
}

} // namespace
} // namespace headrace::model
