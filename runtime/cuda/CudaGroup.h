// SPDX-License-Identifier: Apache-2.0
//
// CUDA devices (CudaDevice.h) of one process, a GPU each, driven by one thread.
//
//   caller <--- waitAny() looks at the mapped iteration number of each ---+-- GPU 0: its own stream, slab, graphs
//                                                                         +-- GPU 1: ...
//
// The clock is CLOCK_MONOTONIC. The bus to host memory is the machine's: nothing sets it, and what it had to give is
// not measured. A device that fails says so by its own calls, and by a wait for it; the others go on.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/core/DeviceGroup.h"
#include "runtime/cuda/CudaDevice.h"

namespace headrace::cuda {

// One device an entry, each as makeCudaDevice() makes it, and refuses to. InvalidArgument for no device, and for a GPU
// that is named twice.
absl::StatusOr<std::unique_ptr<core::DeviceGroup>> makeCudaGroup(absl::Span<const CudaOptions> devices);

} // namespace headrace::cuda
