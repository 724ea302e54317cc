// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/status.h"
#include "compiler/choice/CompileRequest.h"

namespace headrace::compiler {

// InvalidArgument for what a user stated of the placement and no policy can make of this model: interval 0, an interval
// beside a count, more layers than there are, ... Keys are spelled as in a job file. `cycles`: what the policy does in
// stated places is what CyclePlaces.h says.
absl::Status checkStated(const CompileRequest &request, const Choice &choice, bool cycles);

} // namespace headrace::compiler
