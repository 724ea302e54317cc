// SPDX-License-Identifier: Apache-2.0
//
// Rows of packed caches, from F32 and to F32, as docs/encodings.md defines them: the same bits on every instruction
// set. What a row is packed to depends on the row alone.
#pragma once

#include <cstring>

#include "kernels/Kernels.h"
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
    for (int64_t d = 0; d < n; d += of.group, scales += kPackedKvHeader) {
      uint16_t both[2];
      std::memcpy(both, scales, sizeof both);
      const V scale = V::set(floatFromF16(both[0])), min = V::set(floatFromF16(both[1]));
      if (of.codeBits == 4) {
        for (int64_t i = d; i < d + of.group; i += kPair) {
          V low, high;
          V::loadNibbles(codes + i / 2, low, high);
          V::fma(low, scale, min).store(out + i);
          V::fma(high, scale, min).store(out + i + V::kLanes);
        }
      } else {
        for (int64_t i = d; i < d + of.group; i += V::kLanes)
          V::fma(V::loadBytes(codes + i), scale, min).store(out + i);
      }
    }
  }

private:
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
  explicit PackedRows(const AttentionArgs &a) : args_(a), block_(a.kvPacking, a.kvHeads, a.blockTokens, a.headDim) {}

  // Tokens [start, start + count) of plane `plane` (k of each head, then v of each): rows of headDim floats, `dim`
  // apart.
  void unpack(const int32_t *blocks, int64_t plane, int64_t start, int64_t count, float *out, int64_t dim) const {
    const auto *kv = static_cast<const uint8_t *>(args_.kv);
    for (int64_t t = start, end = start + count; t < end;) {
      const int64_t line = t % args_.blockTokens, left = args_.blockTokens - line;
      const int64_t here = end - t < left ? end - t : left, row = plane * args_.blockTokens + line;
      const uint8_t *block = kv + args_.segments.of(blocks[t / args_.blockTokens]);
      for (int64_t i = 0; i < here; ++i, out += dim)
        PackKv<V>::unpack(args_.kvPacking, block + block_.codes(row + i), block + block_.scales(row + i), args_.headDim,
                          out);
      t += here;
    }
  }

private:
  const AttentionArgs &args_;
  const PackedKvBlock block_;
};

} // namespace headrace::kernels
