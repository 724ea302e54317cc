// SPDX-License-Identifier: Apache-2.0
//
// CUDA's errors as statuses. Every call is checked where it is made: the message names what was being done, the call,
// and the error.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/status.h"

namespace headrace::cuda {

// "building variant 12 (...): cudaGraphInstantiate: out of memory (cudaErrorMemoryAllocation)". `call` may be the whole
// expression; its name is what stands before the first parenthesis. Behind it stands what to do about errors that CUDA
// does not recover from.
absl::Status cudaFailed(cudaError_t error, const char *call, const std::string &during);

// What becomes of a call that gives something back: nothing is left to do where it fails, but the next call must not
// find its error.
void giveBack(cudaError_t error);

// What to do about such an error, "; end this process ..."; empty for others.
const char *adviceAbout(cudaError_t error);

// Returns from a function that returns a status or a StatusOr.
#define HEADRACE_CUDA(during, call)                                                                                    \
  do {                                                                                                                 \
    if (const cudaError_t error_ = (call); error_ != cudaSuccess)                                                      \
      return ::headrace::cuda::cudaFailed(error_, #call, during);                                                      \
  } while (false)

} // namespace headrace::cuda
