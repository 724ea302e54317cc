// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

namespace headrace::bench {

// One thread that reads *flag until it is at least `turn`, or `nanoseconds` have passed.
cudaError_t enqueueSpin(const int *flag, int turn, unsigned long long nanoseconds, cudaStream_t stream);

// Whether there is a GPU whose time is measured. Over the stand-in there is none: the same is run, as rarely as it may.
bool timesCount();

} // namespace headrace::bench
