// SPDX-License-Identifier: Apache-2.0
//
// Whether a CUDA device can be used at all, and why not.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace headrace::cuda {

struct DeviceInfo {
  int index = 0;
  std::string name;
  int major = 0, minor = 0; // compute capability
  int numaNode = -1;        // of host memory near it; -1: unknown
  int driverVersion = 0;
};

// GPUs are counted by their place on the PCI bus, as nvidia-smi counts them, unless CUDA_DEVICE_ORDER says otherwise;
// CUDA's own order is the fastest first. Before the first call of CUDA's.
void orderByPci();

// Makes the device the calling thread's. Refuses, naming it and what to do: no driver, one before 13.0, no device, an
// index that there is no device for, a GPU that the kernels were not built for, one that cannot read pinned memory in
// place.
absl::StatusOr<DeviceInfo> selectDevice(int index);

// Unavailable where a GPU of this name and compute capability cannot be used; asks the driver, makes no context.
absl::Status checkUsable(const std::string &name, int major, int minor, int index);

// ResourceExhausted naming the numbers where the device has fewer than `arena` + `overhead` free bytes.
absl::Status checkDeviceMemory(uint64_t arena, uint64_t overhead);

} // namespace headrace::cuda
