// SPDX-License-Identifier: Apache-2.0
//
// A request of which everything is searched for that it does not state (compiler/search).
#pragma once

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/evaluate/Draft.h"

namespace headrace::compiler {

// ResourceExhausted, with the least that would do of memory and of each objective, where nothing does.
absl::StatusOr<Draft> compileSearched(const CompileRequest &request);

} // namespace headrace::compiler
