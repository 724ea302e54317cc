// SPDX-License-Identifier: Apache-2.0
//
// A request whose mini-batches, activation blocks and residual streams are chosen: its placements, where none are
// stated, by its policy, of what there is to choose from.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/choice/CompileRequest.h"
#include "compiler/choose/Compilation.h"
#include "compiler/evaluate/Draft.h"

namespace headrace::compiler {

absl::StatusOr<Draft> compileStated(const CompileRequest &request, const Choice &chosen, const ToChooseFrom &of = {});

} // namespace headrace::compiler
