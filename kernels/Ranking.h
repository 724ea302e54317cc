// SPDX-License-Identifier: Apache-2.0
//
// How sampling ranks logits, for every device.
#pragma once

#include <cstdint>

#include "kernels/HostDevice.h"

namespace headrace::kernels {

static constexpr float kMinusInfinity = -__builtin_inff();

// Orders floats as unsigned integers: a < b exactly when key(a) < key(b), -0 equal to +0; NaN is as minus infinity.
HEADRACE_HD static inline uint32_t rankingKey(float logit) {
  if (logit != logit)
    logit = kMinusInfinity;
  logit += 0.0f;
  uint32_t bits;
  __builtin_memcpy(&bits, &logit, sizeof bits);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// For the largest logit and the lowest id among equals: the largest of these words holds both. NaN is below minus
// infinity here, so that it wins only where nothing else is.
HEADRACE_HD static inline uint64_t greedyWord(float logit, uint32_t id) {
  return uint64_t{logit != logit ? 0 : rankingKey(logit)} << 32 | (0xffffffffu - id);
}
HEADRACE_HD static inline uint32_t greedyId(uint64_t word) { return 0xffffffffu - static_cast<uint32_t>(word); }

} // namespace headrace::kernels
