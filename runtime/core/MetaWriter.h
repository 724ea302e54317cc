// SPDX-License-Identifier: Apache-2.0
//
// Fills the iteration buffer from what an engine knows of its sequences, without allocating.
//
//   SequenceRows rows[2] = {{.tokens = prompt, .firstPosition = 0, .blocks = table0, .sample = true, .requestSlot = 0},
//                           {.tokens = last, .firstPosition = 41, .blocks = table1, .sample = true, .requestSlot = 1}};
//   RETURN_IF_ERROR(writeMeta(plan.metaLayout, plan.blockTokens, rows, device.meta()));
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/IterationMeta.h"

namespace headrace::core {

// One sequence's part of an iteration: the rows that it brings, in order of position.
struct SequenceRows {
  absl::Span<const int32_t> tokens; // ids, or -1 - r: what request slot r sampled last
  int64_t padding = 0;              // so many rows of token 0 behind them, at the positions that follow
  int64_t firstPosition = 0;        // of tokens[0]; earlier positions are in the cache
  absl::Span<const int32_t> blocks; // KV blocks by position / blockTokens; at least as many as the last row needs
  bool sample = false;              // the logits of the last of `tokens` are wanted
  int32_t requestSlot = 0;          // where its sampled token is kept
  float temperature = 0;
  float topP = 1;
  uint64_t seed = 0;
  int32_t topK = 0;
  float minP = 0, repetition = 1, presence = 0, frequency = 0;
  int64_t promptTokens = 0; // of the sequence's tokens: those that were not generated
};

// Refuses what does not fit `layout` (InvalidArgument naming sequence, figure and limit); `meta` is then unspecified.
// Rows that the last use of this buffer had and this one has not get the scratch block (kvSlot 0). The block table is
// written where `meta` says that it begins.
absl::Status writeMeta(const kernels::MetaLayout &layout, int64_t blockTokens, absl::Span<const SequenceRows> sequences,
                       kernels::IterationMeta *meta);
// Of an iteration of several mini-batches, all that the plan has, some of them perhaps empty: the sequences of each,
// whose request slots and blocks are the mini-batch's own, into the iteration buffer at `meta`. Block tables are placed
// one behind the other.
absl::Status writeMetas(const kernels::MetaLayout &layout, int64_t blockTokens,
                        absl::Span<const absl::Span<const SequenceRows>> miniBatches, kernels::IterationMeta *meta);

} // namespace headrace::core
