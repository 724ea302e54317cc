// SPDX-License-Identifier: Apache-2.0
//
// What an iteration copies, as reports say it.
#pragma once

#include "runtime/plan/value/Plan.h"

namespace headrace::tools {

// Of a copy of a step: all that it may move; of a residual stream the rows of a full bucket of so many new tokens.
uint64_t movedBytes(const plan::Plan &plan, const plan::Schedule &schedule, uint32_t step, int64_t newTokens);
// Of all steps of the variant, by direction; direct steps included.
plan::LinkBytes movedBytes(const plan::Plan &plan, const plan::Variant &variant);

// Whether a step copies a residual stream.
bool movesResidual(const plan::Plan &plan, const plan::Schedule &schedule, const plan::Step &step);

} // namespace headrace::tools
