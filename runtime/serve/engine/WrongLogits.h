// SPDX-License-Identifier: Apache-2.0
//
// What is said of logits that are not finite, and how the step that made the numbers is found: by a second pass over
// the prompt alone: its rows from position 0, in chunks, through the same weights into the same KV blocks. Rows do not
// depend on the batch they are in, so the pass meets the same numbers; where they first arose in an earlier iteration
// and came through the KV cache, it meets them there.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "runtime/core/Runtime.h"

namespace headrace::serve {

// "position 4: the logits (and those of 1 more prompt) are not finite ...; `step`": of the token at this position.
std::string wrongLogitsMessage(int64_t position, size_t others, const std::string &step);

// The step, row and number, or why they were not found, of a sequence with these tokens and KV blocks of a mini-batch;
// `most`: rows of an iteration. For when nothing is in flight.
std::string firstWrongStep(core::Runtime &runtime, absl::Span<const int32_t> ids, uint32_t miniBatch,
                           absl::Span<const int32_t> blocks, uint32_t placement, int64_t most);

} // namespace headrace::serve
