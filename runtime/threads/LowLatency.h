// SPDX-License-Identifier: Apache-2.0
//
// What the operating system can do for threads that wait for each other every few microseconds.
//
//   cores that do not halt   an idle core is woken in a few microseconds instead of tens: a virtual core that halts is
//                            woken through its hypervisor, a real one out of its sleep state (Linux: PM QoS, the file
//                            /dev/cpu_dma_latency held open with 0 us in it)
//   urgent threads           a lane that wakes takes its core from whoever has it (nice -15, time slices of 0.1 ms),
//                            instead of waiting for that one's slice of some milliseconds to end
//
// Not real-time priority: a lane that computes without pause would be stopped for 50 ms in each second, so that others
// do not starve. Both need rights that not every process has; what is not granted is an error, as times with and
// without them differ.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headrace::threads {

// Keeps all idle cores of the machine from halting while it lives.
class AwakeCores {
public:
  // PermissionDenied, or NotFound where the kernel has no such file, naming it.
  static absl::StatusOr<AwakeCores> hold();
  AwakeCores() = default; // holds nothing
  AwakeCores(AwakeCores &&other) noexcept;
  AwakeCores &operator=(AwakeCores &&other) noexcept;
  ~AwakeCores();

private:
  explicit AwakeCores(int file) : file_(file) {}
  int file_ = -1;
};

// Makes the calling thread urgent for the rest of its life. PermissionDenied naming what is missing.
absl::Status makeThreadUrgent();

} // namespace headrace::threads
