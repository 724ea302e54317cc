// SPDX-License-Identifier: Apache-2.0
//
// The instruction sets that the host kernels are compiled for. hostKernel(op) is the best one that the machine has;
// tests ask for each by name.
#pragma once

#include "kernels/Kernels.h"

namespace headrace::kernels {

enum class HostIsa {
  Portable, // plain C++
  Avx2,     // x86-64 with AVX2, FMA and F16C
  Avx512    // and AVX-512 F, BW, DQ and VL: the same bits as Avx2
};

bool isaSupported(HostIsa isa); // compiled in, and this machine has it
HostIsa bestIsa();
// isa must be supported.
HostKernel hostKernel(Op op, HostIsa isa);

// One table a file, so that each file has its own compiler flags.
HostKernel portableKernel(Op op);
HostKernel avx2Kernel(Op op);
HostKernel avx512Kernel(Op op);

} // namespace headrace::kernels
