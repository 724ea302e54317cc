// SPDX-License-Identifier: Apache-2.0
//
// Calls that fail because a test wants it, and what the stand-in has given out.
#pragma once

#include <cuda_runtime_api.h>

namespace headrace::stand_in {

// Counts a call of that name, for a device; without one for the thread's. The error that it has to return.
cudaError_t called(const char *name, int device);
cudaError_t called(const char *name);

// Whether the calling thread is in a host node's function: then every call ends the program.
bool &inHostFunction();

enum class Kind { DeviceMemory, HostMemory, Streams, Events, Graphs, Executables, Handles };
void given(Kind kind, int change);

// A call that makes nothing when it fails. What gives something back does so all the same, and returns the error.
#define STAND_IN_CALL()                                                                                                \
  do {                                                                                                                 \
    if (const cudaError_t planned_ = ::headrace::stand_in::called(__func__); planned_ != cudaSuccess)                  \
      return planned_;                                                                                                 \
  } while (false)

} // namespace headrace::stand_in
