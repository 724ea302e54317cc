// SPDX-License-Identifier: Apache-2.0
//
// Op::Activate on the host.
#pragma once

#include "kernels/host/HostEntry.h"
#include "kernels/host/VecMath.h"

namespace headrace::kernels {

template <typename V> void activate(const void *opaque) {
  const auto &args = *static_cast<const ActivateArgs *>(opaque);
  const int64_t n = args.intermediate;
  for (int64_t t = 0; t < *args.count; ++t) {
    const float *gate = static_cast<const float *>(args.gateUp) + t * 2 * n, *up = gate + n;
    float *y = static_cast<float *>(args.y) + t * n;
    int64_t i = 0;
    for (; i + V::kLanes <= n; i += V::kLanes)
      (silu(V::load(gate + i)) * V::load(up + i)).store(y + i);
    if (i < n)
      (silu(V::loadPartial(gate + i, n - i)) * V::loadPartial(up + i, n - i)).storePartial(y + i, n - i);
  }
}

template <typename V> struct HostEntry<V, ActivateArgs> { static constexpr HostKernel kRun = activate<V>; };

} // namespace headrace::kernels
