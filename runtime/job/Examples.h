// SPDX-License-Identifier: Apache-2.0
//
// Shapes and hardware profiles by bare name: "opt-6.7b" for examples/models/opt-6.7b.toml. They are found wherever the
// program lies: it carries those that it was built with. A folder of examples wins over these.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace headrace::model {

// Folders that may hold shipped files of a kind ("models" or "hardware"), the first wins: $HEADRACE_EXAMPLES/kind,
// examples/kind beside the binary or in one of the folders above it (also share/headrace/examples/kind there).
std::vector<std::string> exampleFolders(const std::string &kind);

// Names without .toml of the shipped files of a kind, ascending.
std::vector<std::string> exampleNames(const std::string &kind);

// The .toml file or the folder that `pathOrName` means: a path that exists (relative to `folder`, which may be empty),
// or else the bare name of a shipped file, "/built-in/models/opt-6.7b.toml" for one that only the program carries.
// kNotFound, naming what is shipped, if it is neither.
absl::StatusOr<std::string> resolveExample(const std::string &folder, const std::string &pathOrName,
                                           const std::string &kind);

// The text of the file that resolveExample() gave.
absl::StatusOr<std::string> readExample(const std::string &path);

} // namespace headrace::model
