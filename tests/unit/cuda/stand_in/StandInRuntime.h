// SPDX-License-Identifier: Apache-2.0
//
// Between the stand-in's files.
#pragma once

#include <cstdint>

#include "tests/unit/cuda/stand_in/StandInGraph.h"

namespace headrace::stand_in {

// Remembers the error for cudaGetLastError.
cudaError_t failed(cudaError_t error);
bool instant();
bool programmatic();
uint64_t nextOrder();
const void *lastSource(); // of the copy that lastCopyBytes() is of
// Whether a copy of the thread's device may read or write host memory there: it was taken or registered.
bool pinned(const void *memory, uint64_t bytes);

int currentDevice();              // the calling thread's
uint64_t shownMemory(int device); // bytes
// cudaErrorInvalidResourceHandle for what was made on another device than that.
cudaError_t checkHere(int device);
// The same for device memory; cudaErrorInvalidValue where there is none.
cudaError_t checkDeviceMemory(const void *memory, uint64_t bytes);
// The same for a copy: its host side must be pinned, its other side memory of that device.
cudaError_t checkCopy(const StandInCopy &copy);
// How much shared memory a kernel may have there; more than 48 KiB once it was asked for.
int &sharedBytesOf(const void *function);

// A node of the stream's capture, or an entry of the queue.
cudaError_t give(cudaStream_t stream, const StandInWork &work);

} // namespace headrace::stand_in
