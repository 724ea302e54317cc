// SPDX-License-Identifier: Apache-2.0
//
// The chunks that a schedule copies to the device, one behind another in a graph of nothing else: what the link alone
// would take for them.
#pragma once

#include <cstdint>

#include "bench/cuda/Gpu.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::bench {

class CopiesAlone {
public:
  struct Measured {
    uint64_t bytes = 0;
    double ms = 0;
    double bandwidth() const { return static_cast<double>(bytes) / ms * 1e3; } // bytes a second
  };
  // The median of three; of the whole capacity where a launch may copy less.
  Measured measure(const plan::Schedule &schedule);

private:
  static constexpr size_t kBytes = kGiB; // chunks lie in halves of it, in turns
  PinnedBuffer host_{kBytes};
  DeviceBuffer device_{kBytes};
  Timer timer_;
};

} // namespace headrace::bench
