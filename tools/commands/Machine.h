// SPDX-License-Identifier: Apache-2.0
//
// The hardware of a job that names none: this machine's.
//
//   a GPU that the CUDA device can use   the shipped profile of its name, or one made of what the driver says of it
//   else the host                        the shipped profile `host`, with the memory that this machine has
//
// What decides is what the machine has, never what is free of it at the moment: the same input gives the same plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/cuda/Gpus.h"
#include "runtime/job/Hardware.h"

namespace headrace::tools {

struct Machine {
  uint64_t memoryBytes = 0; // all of it, or what its control groups may have if that is less
  std::vector<cuda::Gpu> gpus;
  std::string gpusRefused; // why none could be asked for; empty: all were
};
// HEADRACE_HOST_MEMORY says how much memory there is, where it is set; InvalidArgument if that is no amount.
absl::StatusOr<Machine> thisMachine();

// Of a machine's memory, for arena and slab of plans: whole GiB, less what the system and other programs need (2 GiB;
// half of a machine that has less than 4).
uint64_t memoryForPlans(uint64_t machineBytes);

struct MachineHardware {
  model::Hardware hardware;
  std::string device; // that runs it: "host", "cuda", "cuda:1", ...
  // Of a host: what arena and slab may have together, as they lie in the same memory. Unset: they lie apart.
  std::optional<uint64_t> sharedMemory;
  std::string said; // what was taken for it and why, in one line, closing on the flags that state it
};
// `device`: of --device. "host" wants the host, "cuda:1" that GPU, anything else the best there is: the first GPU that
// can be used. Unavailable where a GPU is wanted that cannot be used.
absl::StatusOr<MachineHardware> machineHardware(const Machine &machine, const std::string &device);

} // namespace headrace::tools
