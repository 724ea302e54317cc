// SPDX-License-Identifier: Apache-2.0
//
// `compile --stages`: a plan for each of a model's stages, and the file that names them.
#pragma once

#include "absl/status/status.h"
#include "tools/commands/Commands.h"
#include "tools/commands/Compiling.h"

namespace headrace::tools {

// Refuses flags that are of one plan (--dump-ir, --explain, --verify-weights), and --peer-copies with what a hop takes.
absl::Status compileStagesCommand(const CompileOptions &options, const AssembledJob &assembled);

} // namespace headrace::tools
