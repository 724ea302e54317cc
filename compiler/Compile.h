// SPDX-License-Identifier: Apache-2.0
//
// The compiler's front door: a model, a hardware, a goal in; a verified plan out.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

// ResourceExhausted with the minimum that would do when the goal cannot be met; InvalidArgument for contradictions.
absl::StatusOr<plan::Plan> compile(const CompileRequest &request);

} // namespace headrace::compiler
