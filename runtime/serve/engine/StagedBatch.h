// SPDX-License-Identifier: Apache-2.0
//
// Generates tokens for prompts by a model's stages (core/Stages.h): as many micro-batches as there are stages take
// turns, each with sequences of its own, so that every stage has work:
//
//   stage 0   [ a ][ b ][ a ][ b ]      micro-batch a: its prompts in chunks and its tokens, one launch at a time
//   stage 1        [ a ][ b ][ a ]
//
// A prompt waits for a seat in any of them and for KV blocks up to its last token, so none is preempted; a seat that is
// left is taken by the next prompt. Ids go by the host from the last stage to the first.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/core/Stages.h"
#include "runtime/serve/engine/BatchEngine.h"

namespace headrace::serve {

struct StagedLimits {
  size_t microBatches = 0; // 0: as many as there are stages, and no more than sequences
  int64_t sequences = 0;   // of all micro-batches together; 0: the plans' most (EngineBounds::maxNumSeqs)
};

// How sequences are split among micro-batches: five among two as three and two.
struct StagedSeats {
  size_t microBatches = 1;
  int64_t sequences = 1;               // of a mini-batch, in all micro-batches together
  int64_t of(size_t microBatch) const; // of a mini-batch of one
};
StagedSeats stagedSeats(const plan::Plan &plan, size_t stages, const StagedLimits &limits);

// By stages that were made for `seats.microBatches`. checkPrompts()'s refusals; InvalidArgument for penalties (no stage
// keeps all ids), kept logits, static batching, whole prompts and placements that change. Of the times in the result
// the clock is the group's; of counters those of all devices together.
absl::StatusOr<GenerateResult> generateStaged(core::Stages &stages, const StagedSeats &seats,
                                              const GenerateRequest &request);

} // namespace headrace::serve
