// SPDX-License-Identifier: Apache-2.0
//
// Op::ActAppend on the host.
#pragma once

#include "kernels/host/HostEntry.h"
#include "kernels/host/RopeAppendHost.h"

namespace headrace::kernels {

// By rows.
template <typename V> struct ActAppend {
  static HostWork work(const void *opaque, const HostTeam &team) {
    const auto &args = *static_cast<const ActAppendArgs *>(opaque);
    return HostUnits::of(args.meta->numTokens, args.hidden / 8, team);
  }
  static void run(const void *opaque, const HostWork &work, int64_t, int64_t unit, float *) {
    const auto &args = *static_cast<const ActAppendArgs *>(opaque);
    const int32_t *slots = args.meta->array<int32_t>(args.meta->kvSlot);
    const int64_t first = args.firstAct * args.blockTokens;
    const HostUnits::Run rows = HostUnits::run(work, unit, args.meta->numTokens);
    for (int64_t t = rows.first; t < rows.end; ++t)
      if (slots[t] >= first)
        copyElems(args.act, (slots[t] - first) * args.hidden, args.x, t * args.hidden, args.hidden, args.activation);
  }
};

template <typename V> struct HostEntry<V, ActAppendArgs> {
  static constexpr HostKernel kKernel = {ActAppend<V>::work, sameUnits, ActAppend<V>::run};
};

} // namespace headrace::kernels
