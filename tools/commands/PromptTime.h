// SPDX-License-Identifier: Apache-2.0
//
// Whether a plan reads a request's whole prompt within the TTFT that was asked for. Placements are chosen by what one
// iteration takes; a prompt that takes several is held to its objective here, once they are chosen.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "runtime/job/JobFile.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

// What a request's first token takes.
struct PromptTime {
  int64_t tokens = 0; // of its prompt
  uint64_t iterations = 0;
  std::chrono::nanoseconds time{0};
};

// Of the request that the plan's goal is of (Goal::promptLength), alone in the engine behind one like it, in virtual
// time: as `simulate` has it.
absl::StatusOr<PromptTime> promptTime(const plan::Plan &plan);

// Whether a finished plan holds all its objectives, a TTFT for the whole prompt. Else ResourceExhausted, as by policies
// that do not choose by them, with the least that it would hold.
absl::Status checkObjectives(const plan::Plan &plan);

using CompileAt = std::function<absl::StatusOr<plan::Plan>(std::chrono::nanoseconds ttft)>;

// The plan of a job with a TTFT, by a policy that chooses by it, if it holds that for the whole prompt. Else
// ResourceExhausted with the least TTFT at which what `compileAt` makes does; a refusal of the compiler's, which knows
// iterations, says so too where a prompt takes several. Exact where a placement that is chosen at a longer TTFT is no
// faster.
absl::StatusOr<plan::Plan> holdTtft(const model::Job &job, absl::StatusOr<plan::Plan> plan, const CompileAt &compileAt);

} // namespace headrace::tools
