// SPDX-License-Identifier: Apache-2.0
//
// The device memory that a placement takes, added up from the sizes of what lies in it: not from where it ends.
//
//   resident     what is at home on the device: weights, caches of either kind, what iterations read and write
//   slots        what is away takes turns in them
//   transients   bytes that some schedule's transients take beside the slots; they may lie in slots as well
//   padding      from the end of each to the next 256th byte
#pragma once

#include <cstdint>

#include "runtime/plan/value/Plan.h"

namespace headrace::bench {

struct DevicePeak {
  uint64_t weights = 0, caches = 0, io = 0;
  uint64_t slots = 0, transients = 0, padding = 0;

  uint64_t resident() const { return weights + caches + io; }
  uint64_t total() const { return resident() + slots + transients + padding; }
};
// Of a placement without interleaved caches.
DevicePeak devicePeak(const plan::Plan &plan, uint32_t placement);

} // namespace headrace::bench
