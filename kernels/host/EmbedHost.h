// SPDX-License-Identifier: Apache-2.0
//
// Op::Embed on the host.
#pragma once

#include "kernels/TokenIds.h"
#include "kernels/host/HostEntry.h"
#include "kernels/host/VecMath.h"

namespace headrace::kernels {

// By rows.
template <typename V> struct Embed {
  static HostWork work(const void *opaque, const HostTeam &team) {
    const auto &args = *static_cast<const EmbedArgs *>(opaque);
    return HostUnits::of(args.meta->numTokens, args.order == Order::Panel16 ? args.hidden : args.hidden / 4, team);
  }
  static void run(const void *opaque, const HostWork &work, int64_t, int64_t unit, float *) {
    const auto &args = *static_cast<const EmbedArgs *>(opaque);
    const int32_t *positions = args.meta->array<int32_t>(args.meta->positions);
    const int64_t hidden = args.hidden, vectorEnd = hidden - hidden % V::kLanes;
    const HostUnits::Run rows = HostUnits::run(work, unit, args.meta->numTokens);
    for (int64_t t = rows.first; t < rows.end; ++t) {
      const int32_t id = tokenOf(*args.meta, args.sampled, t);
      if (args.history != nullptr)
        keepId(*args.meta, args.history, t, id);
      const int64_t token = id;
      float *x = args.x + t * hidden;
      if (args.order == Order::Panel16) {
        const int64_t panel = token / 16 * hidden * 16 + token % 16;
        for (int64_t i = 0; i < hidden; ++i)
          x[i] = loadElem(args.table, panel + i * 16, args.elem);
      } else {
        for (int64_t i = 0; i < vectorEnd; i += V::kLanes)
          loadElems<V>(args.table, token * hidden + i, args.elem).store(x + i);
        for (int64_t i = vectorEnd; i < hidden; ++i)
          x[i] = loadElem(args.table, token * hidden + i, args.elem);
      }
      if (args.positions == nullptr)
        continue;
      const int64_t row = (positions[t] + args.positionOffset) * hidden;
      for (int64_t i = 0; i < vectorEnd; i += V::kLanes)
        (V::load(x + i) + loadElems<V>(args.positions, row + i, args.elem)).store(x + i);
      for (int64_t i = vectorEnd; i < hidden; ++i)
        x[i] += loadElem(args.positions, row + i, args.elem);
    }
  }
};

template <typename V> struct HostEntry<V, EmbedArgs> {
  static constexpr HostKernel kKernel = {Embed<V>::work, sameUnits, Embed<V>::run};
};

} // namespace headrace::kernels
