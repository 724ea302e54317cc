// SPDX-License-Identifier: Apache-2.0
//
// How long a sequence may wait for a token, in a plan of one placement: an iteration with as much in use as its bucket
// bounds, or what lies behind the tokens of the one before it, the transition between both, and it up to its tokens.
// Where the one before brought no tail of a cache, at most one block a sequence of a tail is in use.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/plan/value/Plan.h"

namespace headrace::compiler {

// By variant, one for each bucket, decode and mixed: in its slowest iterations. `gaps`: else iterations alone.
std::vector<uint64_t> waitsFor(const plan::Plan &plan, absl::Span<const uint32_t> variants, bool gaps);

} // namespace headrace::compiler
