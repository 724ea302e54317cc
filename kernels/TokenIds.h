// SPDX-License-Identifier: Apache-2.0
//
// Which token a row is, and where its id is kept for penalties; for every device.
#pragma once

#include <cstdint>

#include "kernels/HostDevice.h"
#include "kernels/IterationMeta.h"

namespace headrace::kernels {

// An id below zero, -1 - r, means what request slot r sampled last.
HEADRACE_HD static inline int32_t tokenOf(const IterationMeta &meta, const int32_t *sampled, int64_t t) {
  const int32_t id = meta.array<int32_t>(meta.tokenIds)[t];
  return id < 0 ? sampled[-1 - id] : id;
}
HEADRACE_HD static inline void keepId(const IterationMeta &meta, int32_t *history, int64_t t, int32_t token) {
  history[meta.array<int32_t>(meta.kvSlot)[t]] = token;
}

} // namespace headrace::kernels
