// SPDX-License-Identifier: Apache-2.0
//
// Packed operands to F32: columns of a panel, as the tiles of MicroKernel.h take them. The product of a code and its
// scale is exact in F32, so that with one fused multiply-add or two roundings the value is the same bits, on every
// instruction set, and those of docs/encodings.md.
//
// A group of a panel: the 16 rows' scales, their minima, F16, then the codes column by column (model/WeightLayout.h).
#pragma once

#include "kernels/Kernels.h"
#include "kernels/host/Line.h"

namespace headrace::kernels {

struct PackedPanel {
  static constexpr int64_t kHeaderBytes = 2 * kPanelColumns * static_cast<int64_t>(sizeof(uint16_t));
  static constexpr int64_t columnBytes(const Packing &of) { return kPanelColumns * of.codeBits / 8; }
  static constexpr int64_t groupBytes(const Packing &of) { return kHeaderBytes + of.group * columnBytes(of); }
  // Of a panel's columns, or of all panels before one: `columns` is a multiple of the group.
  static constexpr int64_t bytes(const Packing &of, int64_t columns) { return columns / of.group * groupBytes(of); }
};

template <typename V> struct Unpack {
  static_assert(2 * V::kLanes == kPanelColumns);

  // `count` columns of one group, from `codes` on: 16 floats each to `out`.
  static HEADRACE_INLINE void codes8(const uint8_t *codes, int64_t count, const V (&scale)[2], const V (&min)[2],
                                     float *out) {
    for (int64_t c = 0; c < count; ++c, codes += kPanelColumns, out += kPanelColumns) {
      V::fma(V::loadBytes(codes), scale[0], min[0]).store(out);
      V::fma(V::loadBytes(codes + V::kLanes), scale[1], min[1]).store(out + V::kLanes);
    }
  }
  static HEADRACE_INLINE void codes4(const uint8_t *codes, int64_t count, const V (&scale)[2], const V (&min)[2],
                                     float *out) {
    for (int64_t c = 0; c < count; ++c, codes += V::kLanes, out += kPanelColumns) {
      V low, high;
      V::loadNibbles(codes, low, high);
      V::fma(low, scale[0], min[0]).store(out);
      V::fma(high, scale[1], min[1]).store(out + V::kLanes);
    }
  }

  // Columns [first, first + count) of the panel at `panel`, 16 floats each.
  static void columns(const Packing &of, const uint8_t *panel, int64_t first, int64_t count, float *out) {
    for (const int64_t end = first + count; first < end;) {
      const int64_t inGroup = first % of.group,
                    here = end - first < of.group - inGroup ? end - first : of.group - inGroup;
      const uint8_t *group = panel + PackedPanel::bytes(of, first - inGroup);
      const auto half = [&](int64_t at) { return V::loadF16(reinterpret_cast<const uint16_t *>(group) + at); };
      const V scale[2] = {half(0), half(V::kLanes)};
      const V min[2] = {half(kPanelColumns), half(kPanelColumns + V::kLanes)};
      const uint8_t *codes = group + PackedPanel::kHeaderBytes + inGroup * PackedPanel::columnBytes(of);
      of.codeBits == 4 ? codes4(codes, here, scale, min, out) : codes8(codes, here, scale, min, out);
      first += here;
      out += here * kPanelColumns;
    }
  }
};

} // namespace headrace::kernels
