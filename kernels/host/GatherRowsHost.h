// SPDX-License-Identifier: Apache-2.0
//
// Op::GatherRows on the host.
#pragma once

#include <cstring>

#include "kernels/host/HostEntry.h"

namespace headrace::kernels {

// By rows.
template <typename V> struct GatherRows {
  static HostWork work(const void *opaque, const HostTeam &team) {
    const auto &args = *static_cast<const GatherRowsArgs *>(opaque);
    return HostUnits::of(args.meta->numSampled, args.hidden / 8, team);
  }
  static void run(const void *opaque, const HostWork &work, int64_t, int64_t unit, float *) {
    const auto &args = *static_cast<const GatherRowsArgs *>(opaque);
    const int32_t *rows = args.meta->array<int32_t>(args.meta->sampleRow);
    const size_t rowBytes = static_cast<size_t>(args.hidden) * sizeof(float);
    const HostUnits::Run sampled = HostUnits::run(work, unit, args.meta->numSampled);
    for (int64_t s = sampled.first; s < sampled.end; ++s)
      std::memcpy(args.y + s * args.hidden, args.x + rows[s] * args.hidden, rowBytes);
  }
};

template <typename V> struct HostEntry<V, GatherRowsArgs> {
  static constexpr HostKernel kKernel = {GatherRows<V>::work, sameUnits, GatherRows<V>::run};
};

} // namespace headrace::kernels
