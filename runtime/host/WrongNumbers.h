// SPDX-License-Identifier: Apache-2.0
//
// What a compute step has written, looked at once it has run: for the second pass over an iteration whose logits were
// not finite.
#pragma once

#include <optional>

#include "runtime/core/BindStep.h"
#include "runtime/core/Device.h"

namespace headrace::host {

// The first number of the step's rows that is not finite, by row and column; none if all are, and none for what has no
// numbers (workspaces, tokens) or is no row of the iteration. WrongNumber::step is left to the caller.
std::optional<core::WrongNumber> firstWrongNumber(const core::KernelArgs &args);

} // namespace headrace::host
