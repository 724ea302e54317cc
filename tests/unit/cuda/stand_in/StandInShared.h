// SPDX-License-Identifier: Apache-2.0
//
// What the libraries of products, which are shared ones, ask of the program that has the stand-in.
#pragma once

#include <cuda_runtime_api.h>

extern "C" {

int standInCalled(const char *name); // counts a call of that name; 0, or why it fails
void standInHandles(int change);     // handles and descriptions that were made
int standInDevice();                 // the calling thread's
// A host function on the stream, or in its capture.
cudaError_t standInHost(cudaStream_t stream, cudaHostFn_t function, void *data);

} // extern "C"
