// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

// InvalidArgument where a step takes longer than a plan can say: a figure of the hardware that nobody meant, which the
// message names.
absl::Status checkDurations(const plan::Plan &plan);

} // namespace headrace::compiler
