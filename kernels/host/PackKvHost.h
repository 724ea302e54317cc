// SPDX-License-Identifier: Apache-2.0
//
// Rows of packed caches, from F32 and to F32, as docs/encodings.md defines them: the same bits on every instruction
// set. What a row is packed to depends on the row alone.
#pragma once

#include <cstring>

#include "kernels/Kernels.h"
#include "kernels/host/Line.h"
#include "kernels/host/VecPortable.h"

namespace headrace::kernels {

template <typename V> struct PackKv {
  static constexpr int64_t kPair = 2 * V::kLanes; // dimensions whose codes of 4 bits share bytes
  static constexpr uint16_t kNoNumber = 0x7e00;   // of a group that has no codes: F16's NaN

  // n dimensions, whole groups, of one token's head.
  static void pack(const Packing &of, const float *x, int64_t n, uint8_t *codes, uint8_t *scales) {
    for (int64_t d = 0; d < n; d += of.group, scales += kPackedKvHeader) {
      const Group group = groupOf(of, x + d);
      const uint16_t both[2] = {group.scale, group.min};
      std::memcpy(scales, both, sizeof both);
      uint8_t *const out = codes + d * of.codeBits / 8;
      of.codeBits == 4 ? pack4(of, x + d, group, out) : pack8(of, x + d, group, out);
    }
  }

  static HEADRACE_INLINE void unpack(const Packing &of, const uint8_t *codes, const uint8_t *scales, int64_t n,
                                     float *out) {
    of.codeBits == 4 ? unpackOf<4>(of, codes, scales, n, out) : unpackOf<8>(of, codes, scales, n, out);
  }

private:
  // Sixteen dimensions at a time, which every group has a multiple of: a line of a panel's codes is laid out alike.
  template <int kBits>
  static HEADRACE_INLINE void unpackOf(const Packing &of, const uint8_t *codes, const uint8_t *scales, int64_t n,
                                       float *out) {
    for (int64_t d = 0; d < n; d += of.group, scales += kPackedKvHeader) {
      uint16_t both[2];
      std::memcpy(both, scales, sizeof both);
      const auto scale = Line<V>::factor(V::fromF16(both[0]));
      const auto min = Line<V>::set(V::fromF16(both[1]));
      for (int64_t i = d; i < d + of.group; i += kPanelColumns)
        Line<V>::fma(scale, kBits == 4 ? Line<V>::loadCodes4(codes + i / 2) : Line<V>::loadCodes8(codes + i), min)
            .store(out + i);
    }
  }

  struct Group {
    uint16_t scale, min;
  };

  static Group groupOf(const Packing &of, const float *x) {
    // + 0: of -0.0. A NaN or an infinity is looked for by what it makes of zero.
    V lo = V::load(x) + V::zero(), hi = lo, wrong = lo * V::zero();
    for (int64_t i = V::kLanes; i < of.group; i += V::kLanes) {
      const V value = V::load(x + i) + V::zero();
      lo = V::min(value, lo);
      hi = V::max(value, hi);
      wrong = wrong + value * V::zero();
    }
    float lows[V::kLanes], highs[V::kLanes];
    lo.store(lows), hi.store(highs);
    float least = lows[0], most = highs[0];
    for (int i = 1; i < V::kLanes; ++i) {
      least = lows[i] < least ? lows[i] : least;
      most = highs[i] > most ? highs[i] : most;
    }
    if (!(wrong.sum() == 0.0f) || least < -kMostPacked || most > kMostPacked)
      return {0, kNoNumber};
    return {f16FromFloat((most - least) / largestCode(of)), f16FromFloat(least)};
  }
  static HEADRACE_INLINE float largestCode(const Packing &of) { return static_cast<float>((1 << of.codeBits) - 1); }

  // The codes of V::kLanes values: clamped, rounded to the nearest whole number, ties to even, by adding what leaves
  // it in the last bits.
  static HEADRACE_INLINE void codesOf(const float *x, V scale, V min, V most, uint8_t *out) {
    const V shift = V::set(0x1.8p23f);
    float words[V::kLanes];
    (V::min(V::max((V::load(x) - min) / scale, V::zero()), most) + shift).store(words);
    for (int i = 0; i < V::kLanes; ++i)
      out[i] = static_cast<uint8_t>(bitsFromFloat(words[i]));
  }
  static void pack8(const Packing &of, const float *x, const Group &group, uint8_t *out) {
    if (group.scale == 0) {
      std::memset(out, 0, static_cast<size_t>(of.group));
      return;
    }
    const V scale = V::set(floatFromF16(group.scale)), min = V::set(floatFromF16(group.min)),
            most = V::set(largestCode(of));
    for (int64_t i = 0; i < of.group; i += V::kLanes)
      codesOf(x + i, scale, min, most, out + i);
  }
  static void pack4(const Packing &of, const float *x, const Group &group, uint8_t *out) {
    uint8_t codes[kMostKvGroup];
    pack8(of, x, group, codes);
    for (int64_t i = 0; i < of.group; i += kPair, out += V::kLanes)
      for (int j = 0; j < V::kLanes; ++j)
        out[j] = static_cast<uint8_t>(codes[i + j] | codes[i + V::kLanes + j] << 4);
  }
};

// Rows of keys, or of values, of a packed cache in the order of a sequence.
template <typename V> class PackedRows {
public:
  // Tokens [start, start + count) of a plane: k of each head, then v of each.
  struct Part {
    const int32_t *blocks; // of the sequence
    int64_t plane, start, count;
  };

  explicit PackedRows(const AttentionArgs &a) : args_(a), block_(a.kvPacking, a.kvHeads, a.blockTokens, a.headDim) {}

  // Rows of headDim floats, `dim` apart; asks for what is unpacked next, as many rows of it, meanwhile.
  void unpack(const Part &part, const Part &next, float *out, int64_t dim) const {
    Row row(*this, part), ahead(*this, next);
    for (int64_t i = 0; i < part.count; ++i, out += dim) {
      if (i < next.count) {
        ahead.moveTo(i);
        for (int64_t byte = 0; byte < block_.codeBytes(); byte += kCacheLine)
          __builtin_prefetch(ahead.codes + byte, 0, 2);
        __builtin_prefetch(ahead.scales, 0, 2);
      }
      row.moveTo(i);
      PackKv<V>::unpack(args_.kvPacking, row.codes, row.scales, args_.headDim, out);
    }
  }

private:
  static constexpr int64_t kCacheLine = 64;

  // Goes from one to the next; what a block's table has behind the last is never read.
  struct Row {
    Row(const PackedRows &rows, const Part &part)
        : of(rows), block(part.blocks + part.start / rows.args_.blockTokens), plane(part.plane),
          line(part.start % rows.args_.blockTokens) {}
    HEADRACE_INLINE void moveTo(int64_t i) {
      if (i > 0) {
        codes += of.block_.codeBytes(), scales += of.block_.scaleBytes();
        if (++line < of.args_.blockTokens)
          return;
        line = 0, ++block;
      }
      const auto *start = static_cast<const uint8_t *>(of.args_.kv) + of.args_.segments.of(*block);
      const int64_t at = plane * of.args_.blockTokens + line;
      codes = start + of.block_.codes(at), scales = start + of.block_.scales(at);
    }
    const PackedRows &of;
    const int32_t *block;
    int64_t plane, line;
    const uint8_t *codes = nullptr, *scales = nullptr;
  };

  const AttentionArgs &args_;
  const PackedKvBlock block_;
};

} // namespace headrace::kernels
