// SPDX-License-Identifier: Apache-2.0
//
// Compiled with AVX-512 too. As in HostAvx2.cpp, everything it instantiates has its own vectors in its name.
#include "kernels/host/HostIsa.h"
#include "kernels/host/HostTable.h"
#include "kernels/host/VecAvx512.h"

namespace headrace::kernels {

HostKernel avx512Kernel(Op op) { return kernelFor<VecAvx512>(op); }

} // namespace headrace::kernels
