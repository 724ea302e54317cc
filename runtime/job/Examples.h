// SPDX-License-Identifier: Apache-2.0
//
// Where the shipped examples are, and what a path or a bare name in a job or on a command line means.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace headrace::model {

// Folders that may hold shipped files of a kind ("models" or "hardware"), the first wins: $HEADRACE_EXAMPLES/kind,
// examples/kind beside the binary or in one of the folders above it (also share/headrace/examples/kind there), the
// source tree's.
std::vector<std::string> exampleFolders(const std::string &kind);

// Names without .toml of the shipped files of a kind, ascending.
std::vector<std::string> exampleNames(const std::string &kind);

// The .toml file or the folder that `pathOrName` means: a path that exists (relative to `folder`, which may be empty),
// or else the bare name of a shipped file. kNotFound, naming what is shipped, if it is neither.
absl::StatusOr<std::string> resolveExample(const std::string &folder, const std::string &pathOrName,
                                           const std::string &kind);

} // namespace headrace::model
