// SPDX-License-Identifier: Apache-2.0
//
// The one compilation of what was chosen.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/evaluate/Draft.h"

namespace headrace::compiler {

// The draft's candidates through the IR, verified; all else as the draft has it. An error of code kInternal where the
// compiled plan is not as its draft says; other errors are what the hardware has no kernels for.
absl::StatusOr<plan::Plan> compileDraft(const Draft &draft);

} // namespace headrace::compiler
