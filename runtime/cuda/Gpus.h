// SPDX-License-Identifier: Apache-2.0
//
// The GPUs of this machine, asked of the driver without making a context on one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace headrace::cuda {

struct Gpu {
  int index = 0; // as cuda:N counts
  std::string name;
  int major = 0, minor = 0;   // compute capability
  uint64_t memoryBytes = 0;   // that CUDA sees
  double memoryBandwidth = 0; // bytes/s, of clock and bus; 0: the driver does not say
  int multiprocessors = 0;
  double clock = 0;    // of the multiprocessors, Hz; 0: the driver does not say
  absl::Status usable; // why makeCudaDevice() would refuse it
};

// Empty where there is no driver or no GPU, and in a program built without CUDA. Unavailable, saying what to do, where
// there is a driver that is too old to be asked.
absl::StatusOr<std::vector<Gpu>> gpus();

} // namespace headrace::cuda
