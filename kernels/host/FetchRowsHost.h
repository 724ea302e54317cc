// SPDX-License-Identifier: Apache-2.0
//
// Op::FetchRows on the host.
#pragma once

#include "kernels/host/HostEntry.h"
#include "kernels/host/HostUnits.h"
#include "kernels/host/Rows.h"

namespace headrace::kernels {

// By rows.
template <typename V> struct FetchRows {
  static HostWork work(const void *opaque, const HostTeam &team) {
    const auto &args = *static_cast<const FetchRowsArgs *>(opaque);
    return HostUnits::of(args.meta->numTokens, args.columns / 8, team);
  }
  static void run(const void *opaque, const HostWork &work, int64_t, int64_t unit, float *) {
    const auto &args = *static_cast<const FetchRowsArgs *>(opaque);
    const HostUnits::Run rows = HostUnits::run(work, unit, args.meta->numTokens);
    copyElems(args.y, rows.first * args.columns, args.x, rows.first * args.columns,
              (rows.end - rows.first) * args.columns, args.activation);
  }
};

template <typename V> struct HostEntry<V, FetchRowsArgs> {
  static constexpr HostKernel kKernel = {FetchRows<V>::work, sameUnits, FetchRows<V>::run};
};

} // namespace headrace::kernels
