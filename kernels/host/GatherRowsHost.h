// SPDX-License-Identifier: Apache-2.0
//
// Op::GatherRows on the host.
#pragma once

#include <cstring>

#include "kernels/host/HostEntry.h"

namespace headrace::kernels {

template <typename V> void gatherRows(const void *opaque) {
  const auto &args = *static_cast<const GatherRowsArgs *>(opaque);
  const int32_t *rows = args.meta->array<int32_t>(args.meta->sampleRow);
  const size_t rowBytes = static_cast<size_t>(args.hidden) * sizeof(float);
  for (int64_t s = 0; s < args.meta->numSampled; ++s)
    std::memcpy(args.y + s * args.hidden, args.x + rows[s] * args.hidden, rowBytes);
}

template <typename V> struct HostEntry<V, GatherRowsArgs> { static constexpr HostKernel kRun = gatherRows<V>; };

} // namespace headrace::kernels
