// SPDX-License-Identifier: Apache-2.0
//
// Devices in one virtual time whose copies share a bus, and whose cpu lanes and copies a CPU and its memory
// (BusPlayer.h says how), for plans of any hardware: a bus of N GPUs in seconds, on any machine. What host memory
// carries is what the open plans' profiles say, the least where they differ; one that says nothing of its CPU limits
// nothing.
//
// The clock starts at zero and stands still between calls. A launch costs the caller no time: one made at time t starts
// at t or at the end of the device's launch before. Waiting on one device lets the time of all pass; what is launched
// on another one meanwhile is launched at the time to which the wait has brought the clock, so a caller that serves
// several devices waits by waitAny(). Traffic of others on the bus: wait until it changes (untilNs is met exactly),
// setBusBandwidth(), wait on.
//
// A launch takes what the plan says of its bucket, however little of it runs: what bounds the traffic of several
// devices from above counts on no iteration being shorter. core::Pricing::Rows is refused (InvalidArgument at open).
//
// Opening a device again waits for its launches to end. The clock goes on. A time of tokens (tokensVisibleNs) is known
// once they were awaited.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/core/BusShare.h"
#include "runtime/core/DeviceGroup.h"

namespace headrace::sim {

// `devices` of them behind `bus` (bytes/s). A device's own link is its plan's hardware's, or what
// DeviceOptions::linkBandwidth says. InvalidArgument for no device, and for a limit that is not positive.
absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeSimGroup(size_t devices, const core::PathLimits &bus);

} // namespace headrace::sim
