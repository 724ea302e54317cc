// SPDX-License-Identifier: Apache-2.0
//
// `run` and `simulate` of a model's stages: a file that names their plans (plan/StagesFile.h), a device for each.
#pragma once

#include "absl/status/status.h"
#include "tools/commands/Commands.h"

namespace headrace::tools {

// Refuses by name what only one plan has: flags of a job, limits of graphs, static batches and swapping. --max-num-seqs
// is of all micro-batches together.
absl::Status runStages(const RunOptions &options);

} // namespace headrace::tools
