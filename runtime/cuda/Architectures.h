// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs the kernels were built for.
#pragma once

#include <string>

namespace headrace::cuda {

// Before it there are no asynchronous copies and no BF16 in tensor cores.
inline constexpr int kLeastArchitecture = 80;

enum class KernelCode {
  None,
  MachineCode,
  Ptx, // the driver compiles it, at the first start
};

// What runs on a GPU of that compute capability. `built` is CMAKE_CUDA_ARCHITECTURES, separated by commas: "80,86,90"
// (machine code and PTX), "90-real" (machine code only), "80-virtual" (PTX only), "90a" (that GPU and no other).
// Machine code runs on GPUs of the same major number and the same or a higher minor one, but on those of Jetson and
// Drive only if it is theirs; PTX on any newer GPU.
KernelCode codeFor(const std::string &built, int major, int minor);

} // namespace headrace::cuda
