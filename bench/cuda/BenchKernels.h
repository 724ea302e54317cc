// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace headrace::bench {

// y[i] = x[i] + 1
struct ChainArgs {
  const float *x;
  float *y;
  int64_t n;
};
// One thread writes *asked = round and waits until *answered is at least that, or two seconds; both are the host's.
struct AskArgs {
  uint32_t *asked;
  const uint32_t *answered;
  uint32_t round;
};

// One thread reads host memory `count` times, each where the one before says: words[0] is 0.
struct ReadsArgs {
  const uint32_t *words;
  uint32_t *last;
  uint32_t count;
};

// The __global__ functions.
const void *chainEntry();
const void *askEntry();
const void *readsEntry();

} // namespace headrace::bench
