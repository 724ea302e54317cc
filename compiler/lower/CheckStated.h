// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "runtime/job/JobFile.h"

namespace headrace::compiler {

// InvalidArgument for what a user stated of the placement and no policy can make of this model: interval 0, an interval
// beside a count, more layers than there are, ... Keys are spelled as in a job file.
absl::Status checkStated(const model::Policy &policy, const model::ModelSpec &model);

} // namespace headrace::compiler
