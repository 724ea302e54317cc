// SPDX-License-Identifier: Apache-2.0
//
// Flags of other engines that mean one of ours: vLLM's and llama.cpp's words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tools/commands/JobFlags.h"

namespace headrace::tools {

// Adds to `input.flags` what those of other engines mean for this job, whose model and hardware are set, and a line
// for each to `notes`. Refuses one that says something else than ours, which is given as well.
absl::Status translateEngineFlags(JobInput &input, const model::Job &job, std::vector<std::string> &notes);

// Our flag that another engine's stands for, or a share of: "--context" of "--max-model-len". Empty: none.
std::string_view meantBy(std::string_view flag);

} // namespace headrace::tools
