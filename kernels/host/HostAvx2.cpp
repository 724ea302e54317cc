// SPDX-License-Identifier: Apache-2.0
//
// Compiled with AVX2, FMA and F16C. Everything it instantiates has VecAvx2 in its name or is static or always inlined,
// so that no code compiled here can stand in for a function of another file on a machine without these instructions.
#include "kernels/host/HostIsa.h"
#include "kernels/host/HostTable.h"
#include "kernels/host/VecAvx2.h"

namespace headrace::kernels {

HostKernel avx2Kernel(Op op) { return kernelFor<VecAvx2>(op); }

} // namespace headrace::kernels
