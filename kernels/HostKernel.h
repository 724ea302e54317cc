// SPDX-License-Identifier: Apache-2.0
//
// Entry points of the host's kernels, for who calls them without knowing their arguments.
#pragma once

#include "kernels/Types.h"

namespace headrace::kernels {

// args points to the op's struct (Kernels.h). One thread calls at a time.
using HostKernel = void (*)(const void *args);
HostKernel hostKernel(Op op);

} // namespace headrace::kernels
