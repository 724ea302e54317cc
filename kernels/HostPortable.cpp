// SPDX-License-Identifier: Apache-2.0
#include "kernels/HostIsa.h"
#include "kernels/HostTable.h"

namespace headrace::kernels {

HostKernel portableKernel(Op op) { return kernelFor<VecPortable>(op); }

} // namespace headrace::kernels
