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

// The __global__ functions.
const void *chainEntry();
const void *askEntry();

} // namespace headrace::bench
