// SPDX-License-Identifier: Apache-2.0
//
// Op::Activate on the host.
#pragma once

#include "kernels/host/HostEntry.h"
#include "kernels/host/VecMath.h"

namespace headrace::kernels {

// By blocks of columns, row after row.
template <typename V> struct Activate {
  static constexpr int64_t kColumns = 512; // whole vectors: a block may begin at any of its multiples

  static int64_t blocks(const ActivateArgs &args) { return (args.intermediate + kColumns - 1) / kColumns; }

  static HostWork work(const void *opaque, const HostTeam &team) {
    const auto &args = *static_cast<const ActivateArgs *>(opaque);
    return HostUnits::of(*args.count * blocks(args), kColumns / 2, team);
  }

  static void run(const void *opaque, const HostWork &work, int64_t, int64_t unit, float *) {
    const auto &args = *static_cast<const ActivateArgs *>(opaque);
    const int64_t n = args.intermediate, inRow = blocks(args);
    const HostUnits::Run all = HostUnits::run(work, unit, *args.count * inRow);
    for (int64_t block = all.first; block < all.end;) {
      const int64_t t = block / inRow, within = block % inRow;
      const int64_t together = inRow - within < all.end - block ? inRow - within : all.end - block;
      const float *gate = static_cast<const float *>(args.gateUp) + t * 2 * n;
      const int64_t first = within * kColumns, end = first + together * kColumns;
      columns(gate, gate + n, static_cast<float *>(args.y) + t * n, first, end < n ? end : n);
      block += together;
    }
  }

  static HEADRACE_INLINE void columns(const float *gate, const float *up, float *y, int64_t first, int64_t n) {
    int64_t i = first;
    for (; i + V::kLanes <= n; i += V::kLanes)
      (silu(V::load(gate + i)) * V::load(up + i)).store(y + i);
    if (i < n)
      (silu(V::loadPartial(gate + i, n - i)) * V::loadPartial(up + i, n - i)).storePartial(y + i, n - i);
  }
};

template <typename V> struct HostEntry<V, ActivateArgs> {
  static constexpr HostKernel kKernel = {Activate<V>::work, sameUnits, Activate<V>::run};
};

} // namespace headrace::kernels
