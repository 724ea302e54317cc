// SPDX-License-Identifier: Apache-2.0
//
// From an assembled job to a plan: the one place where the command line meets the compiler.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/CompileStages.h"
#include "runtime/job/JobFile.h"
#include "runtime/plan/value/Plan.h"
#include "tools/commands/JobFlags.h"

namespace headrace::tools {

using PhaseText = std::function<void(std::string_view schedule, std::string_view phase, std::string_view text)>;

// job.model and job.hardware must be set. Shows its progress on a terminal. `onPhase` may be empty. `advice`, if there
// is one: what would be better if it were allowed, a line, or empty.
absl::StatusOr<plan::Plan> compileJob(const model::Job &job, const PhaseText &onPhase = {},
                                      const PhaseText &onPass = {}, std::string *advice = nullptr);

// The same, and ResourceExhausted for a plan that misses its objectives unless that is allowed (--allow-missed).
absl::StatusOr<plan::Plan> compileToHold(const AssembledJob &assembled, const PhaseText &onPhase = {},
                                         const PhaseText &onPass = {}, std::string *advice = nullptr);

// A plan for each of so many stages, or for the fewest that will do (0), each of which holds its part of the
// objectives. With --allow-missed, where none do: so many, or the fewest that memory holds. What compileStages()
// refuses, and a record: it is of a whole model.
absl::StatusOr<compiler::StagedPlans> compileStagesToHold(const AssembledJob &assembled, int64_t stages);

// Tokens that the KV cache of such a plan holds. Refuses a goal that contradicts itself.
absl::StatusOr<int64_t> kvTokensOf(const model::Job &job);

// What stands behind `headrace compile` to ask for this job, model first: what it leaves to the compiler is left to it,
// and figures that differ from the named shape's or profile's are flags of their own.
std::string askedFlags(const model::Job &job);

// What stands behind `headrace compile` to get this plan again, model first: the choice is spelled out, nothing is left
// to "auto", and figures that differ from the named shape's or profile's are flags of their own.
std::string chosenFlags(const model::Job &job, const plan::Plan &plan);

} // namespace headrace::tools
