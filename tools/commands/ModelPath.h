// SPDX-License-Identifier: Apache-2.0
//
// Where a plan's model is. A plan keeps a path that was given absolute as it is, and a relative one as it is from the
// plan's own folder, so that it is found from wherever a command is started, and as long as both are moved together.
#pragma once

#include <string>

namespace headrace::tools {

// The model's path as the plan file `planFile` keeps it; `path` is from the current folder.
std::string pathInPlan(const std::string &path, const std::string &planFile);
// The other way round: `path` as `planFile` keeps it, from the current folder.
std::string pathFromPlan(const std::string &path, const std::string &planFile);

} // namespace headrace::tools
