// SPDX-License-Identifier: Apache-2.0
//
// `run` and `simulate` of a model's stages: a file that names their plans (plan/StagesFile.h), a device for each.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/commands/Commands.h"

namespace headrace::tools {

// By what stands in it.
bool isStagesFile(const std::string &path);
// Where such a file names one plan, of a whole model: that.
absl::StatusOr<std::optional<std::string>> onlyPlanOf(const std::string &path);
// Refuses by name what only one plan has: flags of a job, logits, traces and timelines, placements, limits of graphs,
// a scheduler's flags but --max-num-seqs, which is of all micro-batches together.
absl::Status runStages(const RunOptions &options);

} // namespace headrace::tools
