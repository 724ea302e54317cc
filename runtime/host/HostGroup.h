// SPDX-License-Identifier: Apache-2.0
//
// Host devices (HostDevice.h) that share a bus, each with memory, a compute thread and a paced link of its own.
//
//   caller <--- one bell for the tokens of all ---+-- compute thread 0      transfer thread: all links, both
//     waitAny() sleeps on it                      +-- compute thread 1      directions, paced by one Bus
//                                                 |   ...
//                                                 +-- helpers: whichever lane has units
//
// So many threads compute as one of the devices states at most (HostOptions::threads), or as there are devices if that
// is more: each has its own, and what is beyond them helps all (ThreadPool.h). The CPU is the devices here: steps of a
// plan's cpu lane are its compute lane's, by the same threads.
//
// The clock is CLOCK_MONOTONIC. Threads are not pinned unless HostOptions say so; of several that name a transfer core,
// the device opened last has its way. A device that is opened again, or fails to open, ends its own launches
// first and does not hold up the others'.
#pragma once

#include <memory>

#include "absl/types/span.h"
#include "runtime/core/BusShare.h"
#include "runtime/core/DeviceGroup.h"
#include "runtime/host/HostDevice.h"

namespace headrace::host {

// One device an entry. `bus`: bytes/s of all devices together; infinite: the links alone limit. Unpaced devices take
// nothing of it. InvalidArgument for no device, and for a bandwidth that is not positive.
absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeHostGroup(absl::Span<const HostOptions> devices,
                                                                 const core::PathLimits &bus);
// Of a bus that limits copies to devices alone.
absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeHostGroup(absl::Span<const HostOptions> devices,
                                                                 double busBandwidth);

} // namespace headrace::host
