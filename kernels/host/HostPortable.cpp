// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/HostIsa.h"
#include "kernels/host/HostTable.h"

namespace headrace::kernels {

HostKernel portableKernel(Op op) { return kernelFor<VecPortable>(op); }

} // namespace headrace::kernels
