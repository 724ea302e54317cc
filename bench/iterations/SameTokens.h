// SPDX-License-Identifier: Apache-2.0
//
// Replies of a loaded model in one of its placements, to be compared with those in others: prompts in one iteration,
// then a token of each sequence an iteration, each launched before the one before it was read. Any device that holds
// data.
//
// The plan's variants are taken by their buckets, the same in every placement: where each is chosen by what it takes, a
// placement that waits for the link may decode in the variant for prompts, whose kernels sum in another order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/core/Runtime.h"

namespace headrace::bench {

struct ReplyShape {
  int64_t sequences = 0, promptTokens = 0; // of each
  int64_t newTokens = 0;                   // of each; two at least
};

struct Replies {
  std::vector<int32_t> tokens; // of every iteration, of every sequence
  uint64_t lastLogitsHash = 0; // of the last iteration's, every byte of them
  uint64_t h2dBytes = 0;       // of all iterations
};

// NotFound where the placement has no variant for the prompts or for decoding.
absl::StatusOr<Replies> repliesIn(core::Runtime &runtime, uint32_t placement, const ReplyShape &shape);

// Empty where they are the same, or what differs first.
std::string difference(const Replies &expected, const Replies &found, const ReplyShape &shape);

} // namespace headrace::bench
