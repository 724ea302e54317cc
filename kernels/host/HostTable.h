// SPDX-License-Identifier: Apache-2.0
//
// The table from op to entry for one lane type. Included by one file for each instruction set. HostOps.inc, which CMake
// writes, includes the header of every op that kernels/CMakeLists.txt lists; an op of HEADRACE_OPS that is in none of
// them has no HostEntry, and this does not compile.
#pragma once

#include "HostOps.inc"

namespace headrace::kernels {

template <typename V> HostKernel kernelFor(Op op) {
  switch (op) {
#define HEADRACE_OP(name, value, text)                                                                                 \
  case Op::name:                                                                                                       \
    return HostEntry<V, name##Args>::kKernel;
    HEADRACE_OPS(HEADRACE_OP)
#undef HEADRACE_OP
  }
  return {}; // a value that no op has
}

} // namespace headrace::kernels
