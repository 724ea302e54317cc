// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/CudaKernels.h"

namespace headrace::stand_in {

// The name under which cudaEntry gave this function; empty if it gave none such.
std::string kernelName(const void *function);

// How a kernel runs on the emulator.
struct Runs {
  size_t bytes = 0; // of its one argument; 0: there is no such kernel
  void (*call)(const void *function, const void *args) = nullptr;
};
Runs runsOf(const void *function); // one of cudaEntry's, or of ownKernel's

// A kernel of a program's own, compiled for the emulator: it is known from now on.
const void *ownKernel(const void *function, const Runs &runs);
template <typename Args> const void *ownKernel(void (*kernel)(const Args)) {
  return ownKernel(reinterpret_cast<const void *>(kernel), {sizeof(Args), [](const void *function, const void *args) {
                                                              reinterpret_cast<void (*)(const Args)>(const_cast<void *>(
                                                                  function))(*static_cast<const Args *>(args));
                                                            }});
}

// Runs one launch of it to its end.
void runKernel(const void *function, const kernels::CudaLaunch &launch, const void *args, uint64_t order);

} // namespace headrace::stand_in
