// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/BenchKernels.cuh"

namespace headrace::bench {

const void *chainEntry() { return reinterpret_cast<const void *>(chainKernel); }
const void *askEntry() { return reinterpret_cast<const void *>(askKernel); }
const void *readsEntry() { return reinterpret_cast<const void *>(readsKernel); }

} // namespace headrace::bench
