// SPDX-License-Identifier: Apache-2.0
//
// What an engine of a plan may be given at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/plan/value/Plan.h"

namespace headrace::serve {

// max_num_seqs, the plan's batch, of all mini-batches; max_num_batched_tokens, its largest mixed bucket.
struct EngineBounds {
  int64_t maxNumSeqs = 0, maxNumBatchedTokens = 0;
};
EngineBounds engineBounds(const plan::Plan &plan);
// Of so many sequences a mini-batch has this many at most.
int64_t ofOneMiniBatch(const plan::Plan &plan, int64_t seqs);
// The largest bucket for prompts of each placement that takes so many sequences of a mini-batch; 0: there is none.
std::vector<int64_t> mixedBuckets(const plan::Plan &plan, int64_t sequences);
// Micro-batches of so many stages (core::Stages::make): as many, but no more than a mini-batch has sequences.
size_t microBatchesOf(const plan::Plan &plan, size_t stages, int64_t maxNumSeqs = 0);
// Of so many seats those of one of `microBatches`, as alike as can be: 5 among two as 3 and 2.
int64_t seatsOfMicroBatch(int64_t seats, size_t microBatches, size_t which);

} // namespace headrace::serve
