// SPDX-License-Identifier: Apache-2.0
//
// The pointers inside the kernels' argument structs, by field: for recordings, and to check that a node touches only
// what the plan says.
#pragma once

#include <vector>

#include "kernels/CudaKernels.h"
#include "kernels/Kernels.h"
#include "runtime/cuda/MatMul.h"

namespace headrace::cuda {

struct NamedPointer {
  const char *field;
  const void *address; // null where the op has none
};

std::vector<NamedPointer> pointersOf(const kernels::EmbedArgs &args);
std::vector<NamedPointer> pointersOf(const kernels::NormArgs &args);
std::vector<NamedPointer> pointersOf(const kernels::LinearArgs &args);
std::vector<NamedPointer> pointersOf(const kernels::RopeAppendArgs &args);
std::vector<NamedPointer> pointersOf(const kernels::AttentionArgs &args);
std::vector<NamedPointer> pointersOf(const kernels::ActivateArgs &args);
std::vector<NamedPointer> pointersOf(const kernels::GatherRowsArgs &args);
std::vector<NamedPointer> pointersOf(const kernels::SampleArgs &args);
std::vector<NamedPointer> pointersOf(const kernels::BiasActivateArgs &args);
std::vector<NamedPointer> pointersOf(const kernels::PublishArgs &args);
std::vector<NamedPointer> pointersOf(const MatMul &matmul);

} // namespace headrace::cuda
