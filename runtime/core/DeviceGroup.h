// SPDX-License-Identifier: Apache-2.0
//
// Devices that share a bus to host memory, on one clock. sim: all of them in one virtual time, in which copies that run
// together share the bus max-min fairly; host: real threads, one transfer thread paces the copies of all; cuda: GPUs,
// on the bus that the machine has.
//
//   host memory ==[ bus ]==+-- link 0 -- device 0 <-- Runtime 0 --+
//                          +-- link 1 -- device 1 <-- Runtime 1 --+-- one caller, which waits for the first
//
// The group owns its devices; each is driven as Device.h says, all by one thread. Waiting on one device (awaitTokens,
// drain, meta) lets the time of all pass; waitAny() is how a caller that serves several misses nothing in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/Device.h"

namespace headrace::core {

inline constexpr int64_t kForeverNs = std::numeric_limits<int64_t>::max();

class DeviceGroup {
public:
  virtual ~DeviceGroup() = default;
  virtual size_t size() const = 0;
  virtual Device &device(size_t index) = 0;

  // Waits until the tokens of launch number awaited[i] of device i can be read, for any i, and returns that i (the
  // earliest visible; of equal ones the lowest). 0 awaits nothing of a device. size() if `untilNs` on the group's clock
  // came first: the clock of virtual time then shows exactly untilNs, a real one at least that. Tokens that can be read
  // already come before any time, so a time that has passed asks without waiting; kForeverNs is no limit.
  // InvalidArgument unless there is one entry a device, and something to wait for; FailedPrecondition for a launch that
  // was not made, OutOfRange for tokens that are gone. Allocates nothing.
  virtual absl::StatusOr<size_t> waitAny(absl::Span<const uint64_t> awaited, int64_t untilNs) = 0;
  virtual int64_t nowNs() const = 0; // real or virtual, the clock of every device of the group

  // What the bus has for these devices from now on, host to device, bytes/s: others' traffic takes the rest. Copies
  // under way go on at their new rates.
  // InvalidArgument unless positive and finite; Unimplemented where the bus is a real one.
  virtual absl::Status setBusBandwidth(double bytesPerSecond) = 0;
  // Bytes/s that the bus carried host to device, for all devices together, over the time since the last call in which
  // at least one of these copies ran slower than its link alone would have it: what the bus had to give. 0 if none was
  // slowed, and where a real bus does not say.
  virtual double sampleBusBandwidth() = 0;
};

} // namespace headrace::core
