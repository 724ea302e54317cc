// SPDX-License-Identifier: Apache-2.0
//
// A request of which everything is searched for that it does not state (compiler/search).
#pragma once

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/evaluate/Draft.h"
#include "compiler/search/Generator.h"

namespace headrace::compiler {

// ResourceExhausted, with the least that would do of memory and of each objective, where nothing does.
// `policy`: by its aim (Order::LeastAim).
absl::StatusOr<Draft> compileSearched(const CompileRequest &request, const Generator &policy);

} // namespace headrace::compiler
