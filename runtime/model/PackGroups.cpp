// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/PackGroups.h"

#include <cstring>

#include "runtime/base/HalfFloat.h"

namespace headrace::model {
namespace {

void put(std::byte *target, uint16_t bits) { std::memcpy(target, &bits, sizeof(bits)); }
void put(std::byte *target, int64_t at, unsigned code) { target[at] = static_cast<std::byte>(code); }

// Codes of one row.
void putRow(const uint8_t *codes, const Encoding &encoding, std::byte *target) {
  if (encoding.codeBits == 8)
    std::memcpy(target, codes, static_cast<size_t>(encoding.group));
  else
    for (int64_t c = 0; c < encoding.group / 2; ++c)
      put(target, c, codes[2 * c] | codes[2 * c + 1] << 4);
}

// Codes of 16 rows, column by column.
void putPanel(const uint8_t (&codes)[kPanelRows][kLargestGroup], const Encoding &encoding, std::byte *target) {
  constexpr int64_t kHalf = kPanelRows / 2;
  for (int64_t c = 0; c < encoding.group; ++c)
    if (encoding.codeBits == 8)
      for (int64_t r = 0; r < kPanelRows; ++r)
        put(target, c * kPanelRows + r, codes[r][c]);
    else
      for (int64_t r = 0; r < kHalf; ++r)
        put(target, c * kHalf + r, codes[r][c] | codes[r + kHalf][c] << 4);
}

} // namespace

bool packGroups(const std::byte *const (&rows)[kPanelRows], int64_t cols, DType dtype, const Encoding &encoding,
                MatrixOrder order, std::byte *target, uint64_t rowBytes) {
  const auto group = static_cast<size_t>(encoding.group);
  const uint64_t groupBytes = encoding.groupBytes();
  float values[kLargestGroup];
  uint8_t codes[kPanelRows][kLargestGroup];
  GroupScale scales[kPanelRows];
  for (int64_t g = 0; g < cols / encoding.group; ++g) {
    for (int64_t r = 0; r < kPanelRows; ++r) {
      if (rows[r] != nullptr)
        widenToF32(dtype, rows[r] + static_cast<uint64_t>(g) * group * dtypeBytes(dtype), group, values);
      else
        std::memset(values, 0, sizeof(values));
      const std::optional<GroupScale> scale = quantiseGroup({values, group}, encoding.codeBits, codes[r]);
      if (!scale)
        return false;
      scales[r] = *scale;
    }
    if (order == MatrixOrder::Panel16) {
      std::byte *out = target + static_cast<uint64_t>(g) * kPanelRows * groupBytes;
      for (int64_t r = 0; r < kPanelRows; ++r) {
        put(out + 2 * r, scales[r].scale);
        put(out + 2 * (kPanelRows + r), scales[r].min);
      }
      putPanel(codes, encoding, out + kPanelRows * encoding.headerBytes());
      continue;
    }
    for (int64_t r = 0; r < kPanelRows; ++r) {
      std::byte *out = target + static_cast<uint64_t>(r) * rowBytes + static_cast<uint64_t>(g) * groupBytes;
      put(out, scales[r].scale);
      put(out + 2, scales[r].min);
      putRow(codes[r], encoding, out + encoding.headerBytes());
    }
  }
  return true;
}

} // namespace headrace::model
