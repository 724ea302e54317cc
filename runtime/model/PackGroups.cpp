// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/PackGroups.h"

#include <cstring>
#include <limits>

#include "runtime/base/HalfFloat.h"
#include "runtime/model/PackMatrix.h"

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

// ---- sixteen rows side by side: what quantiseGroup() makes of each, to its bits

#define HEADRACE_ROWS_INLINE inline __attribute__((always_inline))

// Values of a group of 16 rows, and their codes, column by column.
struct PanelGroup {
  alignas(64) float values[kLargestGroup * kPanelRows];
  alignas(64) uint8_t codes[kLargestGroup * kPanelRows];
  alignas(64) float lo[kPanelRows], hi[kPanelRows], min[kPanelRows], scale[kPanelRows], inverse[kPanelRows];
  uint16_t scaleBits[kPanelRows], minBits[kPanelRows];
};

// Vectors of so many rows, in the compilers' portable form.
template <int L> struct Vectors;
#define HEADRACE_VECTORS(L)                                                                                            \
  template <> struct Vectors<L> {                                                                                      \
    typedef float F32 __attribute__((vector_size(4 * L)));                                                             \
    typedef int32_t Mask __attribute__((vector_size(4 * L)));                                                          \
    typedef uint32_t Word __attribute__((vector_size(4 * L)));                                                         \
    typedef uint16_t Half __attribute__((vector_size(2 * L)));                                                         \
    typedef uint8_t Byte __attribute__((vector_size(L)));                                                              \
  }
HEADRACE_VECTORS(4);
HEADRACE_VECTORS(8);
HEADRACE_VECTORS(16);
#undef HEADRACE_VECTORS

template <int L> struct RowVectors {
  using F32 = typename Vectors<L>::F32;
  using Mask = typename Vectors<L>::Mask;
  using Word = typename Vectors<L>::Word;
  using Half = typename Vectors<L>::Half;
  using Byte = typename Vectors<L>::Byte;

  template <class Vector> static HEADRACE_ROWS_INLINE void load(const void *from, Vector &to) {
    std::memcpy(&to, from, sizeof(to));
  }

  // Elements none of which is NaN or infinite.
  static HEADRACE_ROWS_INLINE void widen(const std::byte *from, DType dtype, F32 &out) {
    if (dtype == DType::F32)
      return load(from, out);
    Half halves;
    load(from, halves);
    const Word words = __builtin_convertvector(halves, Word);
    Word bits = words << 16;
    if (dtype == DType::F16) {
      bits = (words & 0x7fff) << 13; // with an exponent that is 112 too small
      load(&bits, out);
      out *= 0x1p112f;
      load(&out, bits);
      bits |= (words & 0x8000) << 16;
    }
    load(&bits, out);
  }

  static HEADRACE_ROWS_INLINE void widenAll(const std::byte *block, DType dtype, int64_t columns, PanelGroup &group) {
    for (int r = 0; r < kPanelRows; r += L) {
      F32 lo;
      widen(block + r * static_cast<int64_t>(dtypeBytes(dtype)), dtype, lo);
      F32 hi = lo;
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t at = c * kPanelRows + r;
        F32 value;
        widen(block + at * static_cast<int64_t>(dtypeBytes(dtype)), dtype, value);
        std::memcpy(group.values + at, &value, sizeof(value));
        lo = value < lo ? value : lo;
        hi = value > hi ? value : hi;
      }
      std::memcpy(group.lo + r, &lo, sizeof(lo));
      std::memcpy(group.hi + r, &hi, sizeof(hi));
    }
  }

  // The quotient is found by a product, which is off by at most 3 x 2^-24 of it, and of 256 by less than 2^-14: only
  // nearer than that to the middle of two codes may it be another. Says whether any was; `exact` divides.
  template <bool exact> static HEADRACE_ROWS_INLINE bool codeAll(int64_t columns, float most, PanelGroup &group) {
    Mask near = {};
    for (int r = 0; r < kPanelRows; r += L) {
      F32 min, scale;
      load(group.min + r, min);
      load((exact ? group.scale : group.inverse) + r, scale);
      const F32 none = {}, largest = none + most;
      for (int64_t c = 0; c < columns; ++c) {
        const int64_t at = c * kPanelRows + r;
        F32 code;
        load(group.values + at, code);
        code = exact ? (code - min) / scale : (code - min) * scale;
        code = code > none ? code : none;
        code = code < largest ? code : largest;
        const F32 shifted = code + 0x1.8p23f; // rounded to the nearest, ties to even; the lowest byte is the code
        if constexpr (!exact) {
          const F32 off = code - (shifted - 0x1.8p23f);
          near |= off * off > 0.2499f;
        }
        Word bits;
        load(&shifted, bits);
        const Byte bytes = __builtin_convertvector(bits & 0xff, Byte);
        std::memcpy(group.codes + at, &bytes, sizeof(bytes));
      }
    }
    int32_t any = 0;
    for (int i = 0; i < L; ++i)
      any |= near[i];
    return any != 0;
  }

  // False if one is beyond kLargestPacked.
  static HEADRACE_ROWS_INLINE bool quantise(const std::byte *block, DType dtype, const Encoding &encoding,
                                            PanelGroup &group) {
    if (dtype == DType::F32)
      widenAll(block, DType::F32, encoding.group, group);
    else if (dtype == DType::F16)
      widenAll(block, DType::F16, encoding.group, group);
    else
      widenAll(block, DType::BF16, encoding.group, group);
    const auto most = static_cast<float>(encoding.largestCode());
    int beyond = 0;
    for (int r = 0; r < kPanelRows; ++r)
      beyond |= static_cast<int>(group.lo[r] < -kLargestPacked) | static_cast<int>(group.hi[r] > kLargestPacked);
    for (int r = 0; r < kPanelRows; ++r) {
      group.scaleBits[r] = f32ToF16((group.hi[r] - group.lo[r]) / most);
      group.minBits[r] = f32ToF16(group.lo[r] + 0.0f); // of -0.0
    }
    for (int r = 0; r < kPanelRows; ++r) {
      const float scale = f16ToF32(group.scaleBits[r]);
      group.min[r] = f16ToF32(group.minBits[r]);
      group.scale[r] = scale == 0.0f ? std::numeric_limits<float>::infinity() : scale; // what it divides is code 0
      group.inverse[r] = 1.0f / group.scale[r];
    }
    if (beyond != 0)
      return false;
    if (codeAll<false>(encoding.group, most, group))
      codeAll<true>(encoding.group, most, group);
    return true;
  }
};

using Quantise = bool (*)(const std::byte *, DType, const Encoding &, PanelGroup &);

#if defined(__x86_64__)
__attribute__((target("avx2"))) bool quantiseAvx2(const std::byte *block, DType dtype, const Encoding &encoding,
                                                  PanelGroup &group) {
  return RowVectors<8>::quantise(block, dtype, encoding, group);
}
__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq"))) bool
quantiseAvx512(const std::byte *block, DType dtype, const Encoding &encoding, PanelGroup &group) {
  return RowVectors<16>::quantise(block, dtype, encoding, group);
}
#endif
bool quantiseAnywhere(const std::byte *block, DType dtype, const Encoding &encoding, PanelGroup &group) {
  return RowVectors<4>::quantise(block, dtype, encoding, group);
}

Quantise quantiseBy(int rows) {
#if defined(__x86_64__)
  if (rows == 16)
    return quantiseAvx512;
  if (rows == 8)
    return quantiseAvx2;
#endif
  return quantiseAnywhere;
}

// A group of 16 rows, elements column by column in `block`, as one of a panel. False if one is beyond kLargestPacked.
bool packPanelGroup(const std::byte *block, DType dtype, const Encoding &encoding, Quantise quantise, std::byte *out) {
  PanelGroup group;
  if (!quantise(block, dtype, encoding, group))
    return false;
  std::memcpy(out, group.scaleBits, sizeof(group.scaleBits));
  std::memcpy(out + sizeof(group.scaleBits), group.minBits, sizeof(group.minBits));
  out += kPanelRows * encoding.headerBytes();
  if (encoding.codeBits == 8) {
    std::memcpy(out, group.codes, static_cast<size_t>(encoding.group * kPanelRows));
    return true;
  }
  for (int64_t c = 0; c < encoding.group; ++c) { // the first eight rows in the lower halves
    uint64_t halves[2];
    std::memcpy(halves, group.codes + c * kPanelRows, sizeof(halves));
    halves[0] |= halves[1] << 4;
    std::memcpy(out + c * kPanelRows / 2, halves, sizeof(halves[0]));
  }
  return true;
}

#undef HEADRACE_ROWS_INLINE

} // namespace

int packedRowsAtATime() {
#if defined(__x86_64__)
  static const int rows = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
      return 16;
    return __builtin_cpu_supports("avx2") ? 8 : 4;
  }();
  return rows;
#else
  return 4;
#endif
}

bool packGroups(const std::byte *const (&rows)[kPanelRows], int64_t cols, DType dtype, const Encoding &encoding,
                MatrixOrder order, std::byte *target, uint64_t rowBytes, int rowsAtATime) {
  const Quantise quantise = quantiseBy(rowsAtATime);
  const auto group = static_cast<size_t>(encoding.group);
  const uint64_t groupBytes = encoding.groupBytes(), sourceBytes = group * dtypeBytes(dtype);
  alignas(64) std::byte block[kLargestGroup * kPanelRows * sizeof(float)];
  for (int64_t g = 0; g < cols / encoding.group; ++g) {
    const auto source = [&](int64_t r) {
      return rows[r] == nullptr ? nullptr : rows[r] + static_cast<uint64_t>(g) * sourceBytes;
    };
    if (order == MatrixOrder::Panel16) {
      const std::byte *parts[kPanelRows];
      for (int64_t r = 0; r < kPanelRows; ++r)
        parts[r] = source(r);
      if (!packPanel(parts, encoding.group, dtype, block) ||
          !packPanelGroup(block, dtype, encoding, quantise,
                          target + static_cast<uint64_t>(g) * kPanelRows * groupBytes))
        return false;
      continue;
    }
    for (int64_t r = 0; r < kPanelRows; ++r) {
      float values[kLargestGroup] = {};
      uint8_t codes[kLargestGroup];
      if (rows[r] != nullptr)
        widenToF32(dtype, source(r), group, values);
      const std::optional<GroupScale> scale = quantiseGroup({values, group}, encoding.codeBits, codes);
      if (!scale)
        return false;
      std::byte *out = target + static_cast<uint64_t>(r) * rowBytes + static_cast<uint64_t>(g) * groupBytes;
      put(out, scale->scale);
      put(out + 2, scale->min);
      putRow(codes, encoding, out + encoding.headerBytes());
    }
  }
  return true;
}

} // namespace headrace::model
