// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/PackMatrix.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace headrace::model {
namespace {

// Element (r, c) gets the value 100 * r + c; columns below, at and above the vector width, rows unaligned.
template <class Element> void checkPanel(int64_t cols, int64_t rows) {
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
  packPanel(pointers, cols, sizeof(Element), reinterpret_cast<std::byte *>(packed.data()));
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < kPanelRows; ++r)
      ASSERT_EQ(packed[static_cast<size_t>(c * kPanelRows + r)], r < rows ? static_cast<Element>(100 * r + c + 1) : 0)
          << "row " << r << " column " << c << " of " << cols;
  EXPECT_EQ(packed.back(), Element{0x5A}) << "wrote behind the panel";
}

TEST(PackPanel, TransposesTwoByteElements) {
  for (int64_t cols : {1, 3, 7, 8, 9, 16, 31, 100})
    for (int64_t rows : {1, 11, 16})
      checkPanel<uint16_t>(cols, rows);
}

TEST(PackPanel, TransposesFourByteElements) {
  for (int64_t cols : {1, 3, 4, 5, 8, 31, 100})
    for (int64_t rows : {1, 11, 16})
      checkPanel<uint32_t>(cols, rows);
}

} // namespace
} // namespace headrace::model
