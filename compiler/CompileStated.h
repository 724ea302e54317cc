// SPDX-License-Identifier: Apache-2.0
//
// A request whose placements are stated, and mini-batches, activation blocks and residual streams chosen.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/evaluate/Draft.h"

namespace headrace::compiler {

absl::StatusOr<Draft> compileStated(const CompileRequest &request, const Choice &chosen);

} // namespace headrace::compiler
