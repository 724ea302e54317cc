// SPDX-License-Identifier: Apache-2.0
//
// The measurements' own kernels on the stand-in.
#include "tests/unit/kernels_cuda/Emulator.h"

#include "bench/cuda/BenchKernels.cuh"
#include "tests/unit/cuda/stand_in/StandInKernels.h"

namespace headrace::bench {

const void *chainEntry() { return stand_in::ownKernel<ChainArgs>(chainKernel); }
const void *askEntry() { return stand_in::ownKernel<AskArgs>(askKernel); }
const void *readsEntry() { return stand_in::ownKernel<ReadsArgs>(readsKernel); }

} // namespace headrace::bench
