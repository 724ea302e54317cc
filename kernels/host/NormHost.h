// SPDX-License-Identifier: Apache-2.0
//
// Op::Norm on the host. A row's sums run over four vectors of eight partial sums, joined in a fixed tree; the mean is
// taken first and the variance from the differences, as in Hugging Face's F32 reference.
#pragma once

#include "kernels/host/HostEntry.h"
#include "kernels/host/VecMath.h"

namespace headrace::kernels {

// Sum over i of (x[i] - shift), or of its square.
template <typename V, bool kSquare> HEADRACE_INLINE float sumOfRow(const float *x, int64_t n, float shift) {
  const V shifts = V::set(shift);
  V partial[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
  int64_t i = 0;
  for (; i + 4 * V::kLanes <= n; i += 4 * V::kLanes) {
    HEADRACE_UNROLL
    for (int j = 0; j < 4; ++j) {
      V d = V::load(x + i + j * V::kLanes) - shifts;
      partial[j] = kSquare ? V::fma(d, d, partial[j]) : partial[j] + d;
    }
  }
  for (int j = 0; i < n; i += V::kLanes, ++j) {
    const int64_t rest = n - i < V::kLanes ? n - i : V::kLanes;
    V d = V::firstLanes(V::loadPartial(x + i, rest) - shifts, V::zero(), rest);
    partial[j] = kSquare ? V::fma(d, d, partial[j]) : partial[j] + d;
  }
  return ((partial[0] + partial[1]) + (partial[2] + partial[3])).sum();
}

// By rows.
template <typename V> struct Norm {
  static HostWork work(const void *opaque, const HostTeam &team) {
    const auto &args = *static_cast<const NormArgs *>(opaque);
    return HostUnits::of(*args.count, args.hidden / 4, team);
  }
  static void run(const void *opaque, const HostWork &work, int64_t, int64_t unit, float *) {
    const auto &args = *static_cast<const NormArgs *>(opaque);
    const int64_t n = args.hidden;
    const HostUnits::Run rows = HostUnits::run(work, unit, *args.count);
    for (int64_t t = rows.first; t < rows.end; ++t) {
      const float *x = args.x + t * n;
      float *y = static_cast<float *>(args.y) + t * n;
      const float mean = args.bias != nullptr ? sumOfRow<V, false>(x, n, 0.0f) / static_cast<float>(n) : 0.0f;
      const float meanSquare = sumOfRow<V, true>(x, n, mean) / static_cast<float>(n);
      const V means = V::set(mean), factor = V::set(1.0f / __builtin_sqrtf(meanSquare + args.eps));
      for (int64_t i = 0; i < n; i += V::kLanes) {
        const int64_t rest = n - i < V::kLanes ? n - i : V::kLanes;
        V v = (V::loadPartial(x + i, rest) - means) * factor * V::loadPartial(args.weight + i, rest);
        if (args.bias != nullptr)
          v = v + V::loadPartial(args.bias + i, rest);
        v.storePartial(y + i, rest);
      }
    }
  }
};

template <typename V> struct HostEntry<V, NormArgs> {
  static constexpr HostKernel kKernel = {Norm<V>::work, sameUnits, Norm<V>::run};
};

} // namespace headrace::kernels
