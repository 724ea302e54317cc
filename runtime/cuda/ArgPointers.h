// SPDX-License-Identifier: Apache-2.0
//
// The pointers inside the kernels' argument structs, by field: for recordings, and to check that a node touches only
// what the plan says.
#pragma once

#include <vector>

namespace headrace::cuda {

struct NamedPointer {
  const char *field;
  const void *address; // null where the op has none
};

// Of an op's struct (kernels/Kernels.h), of a further kernel's (kernels/CudaKernels.h), or of a MatMul.
template <typename Args> std::vector<NamedPointer> pointersOf(const Args &args) {
  std::vector<NamedPointer> pointers;
  args.pointers([&](const char *field, const void *address) { pointers.push_back({field, address}); });
  return pointers;
}

} // namespace headrace::cuda
