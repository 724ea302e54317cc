// SPDX-License-Identifier: Apache-2.0
//
// A device that runs the recorded CUDA graphs of a plan on the host: the kernels' own source on their emulator, copies
// by memcpy, matrix products by plain loops, the CPU's steps by the lane that the device has. Nodes run one at a time
// in an order drawn from those that the graph's edges allow, so that a missing edge shows as different bits. What it
// does not run is CUDA itself.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "runtime/core/Device.h"
#include "runtime/cuda/CpuLane.h"
#include "runtime/cuda/MatMul.h"

namespace headrace::cuda {

struct EmulatedGraphOptions {
  uint64_t order = 0; // which of the allowed orders
  FusePolicy fuse = FusePolicy::Library;
  bool dropCrossEdges = false; // to see that they matter
  CpuLaneOptions cpu;
  std::set<std::string> *ran = nullptr; // gets the names of the kernels that run
};

std::unique_ptr<core::Device> makeEmulatedGraphDevice(const EmulatedGraphOptions &options);

} // namespace headrace::cuda
