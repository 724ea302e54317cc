// SPDX-License-Identifier: Apache-2.0
//
// A plan is compiled for a device that can run it, or refused: not every kernel takes every size and element type.
#pragma once

#include "absl/status/status.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

// Whether the plan's device has a kernel for each compute step of each variant. kUnimplemented, naming the op, whose it
// is, and what the kernel would take.
absl::Status checkKernels(const plan::Plan &plan);

} // namespace headrace::compiler
