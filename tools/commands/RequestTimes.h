// SPDX-License-Identifier: Apache-2.0
//
// What one request takes that a plan's engine has to itself, in virtual time, as `simulate` has it: a plan's own
// predictions are of full buckets, with all KV in use.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

struct RequestTime {
  int64_t prompt = 0, newTokens = 0;      // tokens
  uint64_t prefillIterations = 0;         // that the prompt takes
  std::chrono::nanoseconds firstToken{0}; // from the start, behind a request like it: slots are as that one left them
  double tpotMs = 0;                      // mean gap between tokens; 0 of one token
};

// In the placement that the plan has for so long a prompt. Errors: serve::generate()'s refusals.
absl::StatusOr<RequestTime> requestTime(const plan::Plan &plan, int64_t prompt, int64_t newTokens);

// Of a short prompt, of longer ones by 8s (512, 4,096, 32,768 ... tokens) and of the longest that the plan's context
// holds, each with up to 8 new tokens; fewer where the context is shorter.
absl::StatusOr<std::vector<RequestTime>> requestTimes(const plan::Plan &plan);

} // namespace headrace::tools
