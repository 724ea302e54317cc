// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/PackMatrix.h"

#include <cstring>

namespace headrace::model {
namespace {

// 16-byte vectors in the compilers' portable form.
typedef uint16_t Half8 __attribute__((vector_size(16)));
typedef uint32_t Word4 __attribute__((vector_size(16)));

template <class Vector> Vector load(const std::byte *row, int64_t bytes) {
  Vector value = {};
  if (row != nullptr)
    std::memcpy(&value, row + bytes, sizeof(value));
  return value;
}

template <class Vector> void store(std::byte *target, const Vector &value) {
  std::memcpy(target, &value, sizeof(value));
}

// Pairwise interleave of two vectors' lower or upper halves.
Half8 lower(Half8 a, Half8 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
Half8 upper(Half8 a, Half8 b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
Word4 lower(Word4 a, Word4 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
Word4 upper(Word4 a, Word4 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }

// Transposes a square block held in N vectors of N elements: log2(N) rounds of interleaving row i with row i + N / 2.
template <class Vector, int N> void transpose(Vector (&block)[N]) {
  for (int round = 1; round < N; round *= 2) {
    Vector next[N];
    for (int i = 0; i < N / 2; ++i) {
      next[2 * i] = lower(block[i], block[i + N / 2]);
      next[2 * i + 1] = upper(block[i], block[i + N / 2]);
    }
    for (int i = 0; i < N; ++i)
      block[i] = next[i];
  }
}

template <class Vector, class Element>
void pack(const std::byte *const (&rows)[kPanelRows], int64_t cols, std::byte *target) {
  constexpr int kBlock = sizeof(Vector) / sizeof(Element);
  constexpr int64_t kColumnBytes = kPanelRows * sizeof(Element);
  int64_t c = 0;
  for (; c + kBlock <= cols; c += kBlock) {
    for (int r = 0; r < kPanelRows; r += kBlock) {
      Vector block[kBlock];
      for (int i = 0; i < kBlock; ++i)
        block[i] = load<Vector>(rows[r + i], c * static_cast<int64_t>(sizeof(Element)));
      transpose(block);
      for (int i = 0; i < kBlock; ++i)
        store(target + (c + i) * kColumnBytes + r * static_cast<int64_t>(sizeof(Element)), block[i]);
    }
  }
  for (; c < cols; ++c) {
    for (int r = 0; r < kPanelRows; ++r) {
      Element value = 0;
      if (rows[r] != nullptr)
        std::memcpy(&value, rows[r] + c * static_cast<int64_t>(sizeof(Element)), sizeof(value));
      std::memcpy(target + c * kColumnBytes + r * static_cast<int64_t>(sizeof(Element)), &value, sizeof(value));
    }
  }
}

} // namespace

void packPanel(const std::byte *const (&rows)[kPanelRows], int64_t cols, uint64_t elementBytes, std::byte *target) {
  if (elementBytes == 2)
    pack<Half8, uint16_t>(rows, cols, target);
  else
    pack<Word4, uint32_t>(rows, cols, target);
}

} // namespace headrace::model
