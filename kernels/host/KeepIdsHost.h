// SPDX-License-Identifier: Apache-2.0
//
// Op::KeepIds on the host.
#pragma once

#include "kernels/TokenIds.h"
#include "kernels/host/HostEntry.h"
#include "kernels/host/HostUnits.h"

namespace headrace::kernels {

// By tokens.
template <typename V> struct KeepIds {
  static HostWork work(const void *opaque, const HostTeam &team) {
    const auto &args = *static_cast<const KeepIdsArgs *>(opaque);
    return HostUnits::of(args.meta->numTokens, 2, team);
  }
  static void run(const void *opaque, const HostWork &work, int64_t, int64_t unit, float *) {
    const auto &args = *static_cast<const KeepIdsArgs *>(opaque);
    const HostUnits::Run tokens = HostUnits::run(work, unit, args.meta->numTokens);
    for (int64_t t = tokens.first; t < tokens.end; ++t)
      keepId(*args.meta, args.history, t, tokenOf(*args.meta, args.sampled, t));
  }
};

template <typename V> struct HostEntry<V, KeepIdsArgs> {
  static constexpr HostKernel kKernel = {KeepIds<V>::work, sameUnits, KeepIds<V>::run};
};

} // namespace headrace::kernels
