// SPDX-License-Identifier: Apache-2.0
//
// Rows of elements of any type, from F32 and to F32, each element rounded once. Indices count elements.
#pragma once

#include <cstring>

#include "kernels/host/VecMath.h"

namespace headrace::kernels {

// Elements [index, index + n) of an array to x on.
template <typename V> HEADRACE_INLINE void loadRow(const void *from, int64_t index, int64_t n, Elem elem, float *x) {
  if (elem == Elem::F32) {
    std::memcpy(x, static_cast<const float *>(from) + index, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes)
    loadElems<V>(from, index + i, elem).store(x + i);
  for (; i < n; ++i)
    x[i] = loadElem(from, index + i, elem);
}

// n elements from x on to [index, index + n) of an array.
template <typename V> HEADRACE_INLINE void storeRow(const float *x, void *to, int64_t index, int64_t n, Elem elem) {
  if (elem == Elem::F32) {
    std::memcpy(static_cast<float *>(to) + index, x, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  uint16_t *out = static_cast<uint16_t *>(to) + index;
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes)
    elem == Elem::F16 ? V::load(x + i).storeF16(out + i) : V::load(x + i).storeBf16(out + i);
  for (; i < n; ++i)
    out[i] = elem == Elem::F16 ? f16FromFloat(x[i]) : bf16FromFloat(x[i]);
}

// n elements as they are.
static inline void copyElems(void *to, int64_t toIndex, const void *from, int64_t fromIndex, int64_t n, Elem elem) {
  const int64_t bytes = elemBytes(elem);
  std::memcpy(static_cast<char *>(to) + toIndex * bytes, static_cast<const char *>(from) + fromIndex * bytes,
              static_cast<size_t>(n * bytes));
}

} // namespace headrace::kernels
