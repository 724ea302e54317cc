// SPDX-License-Identifier: Apache-2.0
//
// Which GPUs the kernels were built for.
#pragma once

#include <string>

namespace headrace::cuda {

// `built` is CMAKE_CUDA_ARCHITECTURES, separated by commas: "80,86,90" (machine code and PTX), "90-real" (machine code
// only), "80-virtual" (PTX only), "90a" (that GPU and no other). Machine code runs on GPUs of the same major number and
// the same or a higher minor one; PTX is compiled by the driver for any newer GPU.
bool architectureBuiltIn(const std::string &built, int major, int minor);

} // namespace headrace::cuda
