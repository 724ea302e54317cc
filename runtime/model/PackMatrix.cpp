// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/PackMatrix.h"

#include <algorithm>
#include <cstring>

namespace headrace::model {
namespace {

// 16-byte vectors in the compilers' portable form.
typedef uint16_t Half8 __attribute__((vector_size(16)));
typedef uint32_t Word4 __attribute__((vector_size(16)));

// The exponent's bits, all ones in what is NaN or infinite, and nowhere else.
constexpr uint16_t kExponentF16 = 0x7c00, kExponentBf16 = 0x7f80;
constexpr uint32_t kExponentF32 = 0x7f800000;

// Whether all ones can be among the elements that this is the bitwise or of. Of elements below 2 in magnitude, as
// weights are, all have the exponent's highest bit clear; what may be wrong is looked at one by one.
template <class Element, class Vector> bool mayHaveAllOnes(const Vector &ored, Element exponent) {
  Element any = 0;
  for (size_t i = 0; i < sizeof(Vector) / sizeof(Element); ++i)
    any |= ored[i];
  return (any & exponent) == exponent;
}

template <class Element> bool allFinite(absl::Span<const std::byte> elements, Element exponent) {
  Element largest = 0;
  for (size_t i = 0; i < elements.size() / sizeof(Element); ++i) {
    Element value;
    std::memcpy(&value, elements.data() + i * sizeof(Element), sizeof(value));
    largest = std::max<Element>(largest, value & exponent);
  }
  return largest != exponent;
}

template <class Element> NotFinite find(absl::Span<const std::byte> elements, Element exponent) {
  NotFinite found;
  for (size_t i = 0; i < elements.size() / sizeof(Element); ++i) {
    Element value;
    std::memcpy(&value, elements.data() + i * sizeof(Element), sizeof(value));
    if ((value & exponent) != exponent)
      continue;
    found.first = found.count++ == 0 ? i : found.first;
  }
  return found;
}

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
bool pack(const std::byte *const (&rows)[kPanelRows], int64_t cols, Element exponent, std::byte *target) {
  constexpr int kBlock = sizeof(Vector) / sizeof(Element);
  constexpr int64_t kColumnBytes = kPanelRows * sizeof(Element);
  Vector ored = {};
  int64_t c = 0;
  for (; c + kBlock <= cols; c += kBlock) {
    for (int r = 0; r < kPanelRows; r += kBlock) {
      Vector block[kBlock];
      for (int i = 0; i < kBlock; ++i) {
        block[i] = load<Vector>(rows[r + i], c * static_cast<int64_t>(sizeof(Element)));
        ored |= block[i];
      }
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
      ored[0] |= value;
      std::memcpy(target + c * kColumnBytes + r * static_cast<int64_t>(sizeof(Element)), &value, sizeof(value));
    }
  }
  bool finite = true;
  if (mayHaveAllOnes(ored, exponent))
    for (const std::byte *row : rows)
      finite &= row == nullptr || allFinite<Element>({row, static_cast<size_t>(cols) * sizeof(Element)}, exponent);
  return finite;
}

template <class Vector, class Element>
bool copy(absl::Span<const std::byte> elements, Element exponent, std::byte *target) {
  constexpr size_t kPart = 4 << 10; // read once from memory, and again from the nearest cache
  bool finite = true;
  for (size_t begin = 0; begin < elements.size(); begin += kPart) {
    const absl::Span<const std::byte> part = elements.subspan(begin, kPart);
    Vector ored = {};
    size_t i = 0;
    for (; i + sizeof(Vector) <= part.size(); i += sizeof(Vector))
      ored |= load<Vector>(part.data(), static_cast<int64_t>(i));
    for (; i < part.size(); i += sizeof(Element)) {
      Element value;
      std::memcpy(&value, part.data() + i, sizeof(value));
      ored[0] |= value;
    }
    std::memcpy(target + begin, part.data(), part.size());
    if (mayHaveAllOnes(ored, exponent))
      finite &= allFinite(part, exponent);
  }
  return finite;
}

} // namespace

bool packPanel(const std::byte *const (&rows)[kPanelRows], int64_t cols, DType dtype, std::byte *target) {
  switch (dtype) {
  case DType::F32:
    return pack<Word4>(rows, cols, kExponentF32, target);
  case DType::F16:
    return pack<Half8>(rows, cols, kExponentF16, target);
  case DType::BF16:
    break;
  }
  return pack<Half8>(rows, cols, kExponentBf16, target);
}

bool copyElements(absl::Span<const std::byte> elements, DType dtype, std::byte *target) {
  switch (dtype) {
  case DType::F32:
    return copy<Word4>(elements, kExponentF32, target);
  case DType::F16:
    return copy<Half8>(elements, kExponentF16, target);
  case DType::BF16:
    break;
  }
  return copy<Half8>(elements, kExponentBf16, target);
}

NotFinite findNotFinite(absl::Span<const std::byte> elements, DType dtype) {
  switch (dtype) {
  case DType::F32:
    return find(elements, kExponentF32);
  case DType::F16:
    return find(elements, kExponentF16);
  case DType::BF16:
    break;
  }
  return find(elements, kExponentBf16);
}

} // namespace headrace::model
