// SPDX-License-Identifier: Apache-2.0
//
// Packed operands to F32: a column of a panel's codes to the line that the tiles of MicroKernel.h take, either in
// registers, beside few rows, or to a block of them, which many rows use. The product of a code and its scale is exact
// in F32, so that with one fused multiply-add or two roundings the value is the same bits, on every instruction set,
// and those of docs/encodings.md.
//
// A group of a panel: the 16 rows' scales, their minima, F16, then the codes column by column (model/WeightLayout.h).
#pragma once

#include "kernels/Kernels.h"
#include "kernels/host/MicroKernel.h"

namespace headrace::kernels {

struct PackedPanel {
  static constexpr int64_t kHeaderBytes = 2 * kPanelColumns * static_cast<int64_t>(sizeof(uint16_t));
  static constexpr int64_t columnBytes(const Packing &of) { return kPanelColumns * of.codeBits / 8; }
  static constexpr int64_t groupBytes(const Packing &of) { return kHeaderBytes + of.group * columnBytes(of); }
  // Of a panel's columns, or of all panels before one: `columns` is a multiple of the group.
  static constexpr int64_t bytes(const Packing &of, int64_t columns) { return columns / of.group * groupBytes(of); }
};

// A group of a panel, from its header on.
template <typename V, int kBits> struct PackedGroup {
  static constexpr int64_t kColumnBytes = kPanelColumns * kBits / 8;
  static constexpr int64_t kStep = 4; // columns that are taken at a time: every group is a multiple

  Line<V> scale, min;

  HEADRACE_INLINE void load(const uint8_t *group) {
    const auto *header = reinterpret_cast<const uint16_t *>(group);
    scale = Line<V>::loadF16(header), min = Line<V>::loadF16(header + kPanelColumns);
  }
  HEADRACE_INLINE Line<V> column(const uint8_t *codes) const {
    if constexpr (kBits == 8)
      return Line<V>::fma(Line<V>::loadCodes8(codes), scale, min);
    else
      return Line<V>::fma(Line<V>::loadCodes4(codes), scale, min);
  }
};

// A tile over the `columns` of one group of each of P panels, whose headers are at `group` and panelStride apart; asks
// for what is `ahead` bytes further on.
template <int kBits, typename V, int R, int P>
HEADRACE_INLINE void multiplyPacked(Tile<V, R, P> &tile, const float *x, int64_t xStride, const uint8_t *group,
                                    int64_t panelStride, int64_t columns, int64_t ahead) {
  using Group = PackedGroup<V, kBits>;
  Group of[P];
  HEADRACE_UNROLL
  for (int p = 0; p < P; ++p)
    of[p].load(group + p * panelStride);
  const uint8_t *codes = group + PackedPanel::kHeaderBytes;
  for (int64_t k = 0; k < columns; k += Group::kStep, codes += Group::kStep * Group::kColumnBytes) {
    HEADRACE_UNROLL
    for (int p = 0; p < P; ++p)
      __builtin_prefetch(codes + p * panelStride + ahead);
    HEADRACE_UNROLL
    for (int i = 0; i < Group::kStep; ++i)
      tile.addColumn(x + k + i, xStride, [&](int p) HEADRACE_INLINE_LAMBDA {
        return of[p].column(codes + p * panelStride + i * Group::kColumnBytes);
      });
  }
}

template <typename V> struct Unpack {
  // `count` columns from `groups` on, whole groups of a panel, 16 floats each; asks for as much from `next` on.
  static void columns(const Packing &of, const uint8_t *groups, int64_t count, const uint8_t *next, float *out) {
    of.codeBits == 4 ? columnsOf<4>(of, groups, count, next, out) : columnsOf<8>(of, groups, count, next, out);
  }

private:
  template <int kBits>
  static void columnsOf(const Packing &of, const uint8_t *groups, int64_t count, const uint8_t *next, float *out) {
    using Group = PackedGroup<V, kBits>;
    const int64_t groupBytes = PackedPanel::groupBytes(of);
    for (; count > 0; count -= of.group, groups += groupBytes, next += groupBytes) {
      Group values;
      values.load(groups);
      const uint8_t *codes = groups + PackedPanel::kHeaderBytes;
      const uint8_t *ahead = next;
      for (int64_t c = 0; c < of.group; c += Group::kStep, ahead += Group::kStep * Group::kColumnBytes) {
        __builtin_prefetch(ahead);
        HEADRACE_UNROLL
        for (int i = 0; i < Group::kStep; ++i, codes += Group::kColumnBytes, out += kPanelColumns)
          values.column(codes).store(out);
      }
      __builtin_prefetch(ahead); // as long as the header
    }
  }
};

} // namespace headrace::kernels
