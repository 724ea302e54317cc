// SPDX-License-Identifier: Apache-2.0
//
// Keys of several tokens with the tokens side by side, so that one multiplication serves all of them: a block of rows
// of the cache, transposed in registers. Sums of different tokens never meet, so how many there are makes no difference
// to a result; wider vectors specialise it (VecAvx512.h).
#pragma once

#include "kernels/host/VecMath.h"

namespace headrace::kernels {

// Of any head whose rows are whole vectors of V.
template <typename V, Elem kElem> struct NarrowKeyBlock {
  using Lanes = V;
  static constexpr int kTokens = V::kLanes, kDims = V::kLanes;

  // lines[i]: dimension d + i of the tokens whose keys begin at elements `rows` of kv.
  static HEADRACE_INLINE void load(const void *kv, const int64_t *rows, int64_t d, V (&lines)[kDims]) {
    HEADRACE_UNROLL
    for (int j = 0; j < kTokens; ++j)
      lines[j] = loadElems<V>(kv, rows[j] + d, kElem);
    V::transpose(lines);
  }
};

// Of heads with a multiple of kDims dimensions.
template <typename V, Elem kElem> struct KeyBlock : NarrowKeyBlock<V, kElem> {};

} // namespace headrace::kernels
