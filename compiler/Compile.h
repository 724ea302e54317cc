// SPDX-License-Identifier: Apache-2.0
//
// The compiler's front door: a model, a hardware, a goal in; a verified plan out.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/lower/CompileRequest.h"
#include "runtime/plan/Plan.h"

namespace headrace::compiler {

// ResourceExhausted with the minimum that would do when the goal cannot be met; InvalidArgument for contradictions.
absl::StatusOr<plan::Plan> compile(const CompileRequest &request);

// The least device memory any placement of this policy family needs for this model, goal and buckets (everything that
// can be offloaded is), and what it is made of.
struct Minimum {
  uint64_t bytes = 0;
  std::string breakdown;
};
absl::StatusOr<Minimum> minimumMemory(const CompileRequest &request);

} // namespace headrace::compiler
