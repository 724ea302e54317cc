// SPDX-License-Identifier: Apache-2.0
//
// What a chunk of 64 positions does to one query's softmax: the steps of AttentionHost.h, so that whoever takes a
// query's chunks, one behind the other or each on its own, does the same operations.
#pragma once

#include "kernels/host/VecMath.h"

namespace headrace::kernels {

template <typename V> struct ChunkSoftmax {
  // Scales `tokens` scores, at least one; those behind them, up to whole vectors, become minus infinity. The largest.
  static HEADRACE_INLINE float scale(float *row, int64_t tokens, float by) {
    const V minusInfinity = V::set(-__builtin_inff()), factor = V::set(by);
    V best = minusInfinity;
    for (int64_t t = 0; t < tokens; t += V::kLanes) {
      const V score = V::firstLanes(V::load(row + t) * factor, minusInfinity, tokens - t);
      score.store(row + t);
      best = V::max(score, best);
    }
    return best.maxLane();
  }

  static HEADRACE_INLINE float larger(float before, float chunk) { return chunk > before ? chunk : before; }

  // Scaled scores become exp(score - largest). Their sum.
  static HEADRACE_INLINE float weigh(float *row, int64_t tokens, float largest) {
    const V shift = V::set(largest);
    V sum = V::zero();
    for (int64_t t = 0; t < tokens; t += V::kLanes) {
      const V p = exp(V::load(row + t) - shift);
      p.store(row + t);
      sum = sum + p;
    }
    return sum.sum();
  }

  // What sums so far are multiplied by where the largest score was `before` and is `now`.
  static HEADRACE_INLINE float correction(float before, float now) {
    float factors[V::kLanes];
    exp(V::set(before) - V::set(now)).store(factors);
    return factors[0];
  }
};

} // namespace headrace::kernels
