// SPDX-License-Identifier: Apache-2.0
//
// What objectives hold a choice to: sums of times of iterations, each within a limit.
//
//   tpot         decode of the largest bucket, with all of KV in use that its sequences may have, from the tokens of
//   the
//                iteration before it, which may have been of prompts
//   ttft         the chunks of one prompt (Goal::promptLength), one after the other
//   slo_factor   each bucket within so many times what it takes with nothing on the host
//
// A prompt of 3,000 tokens, chunks of 2,048: TTFT = the time of 2,048 tokens at 2,048 + that of 952 at 3,000.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/search/Aim.h"

namespace headrace::compiler {

struct Limit {
  std::vector<AimPoint> points; // at least one
  bool decode = true;           // else of prompts
  uint64_t residentNs = 0;      // with nothing on the host
  bool operator==(const Limit &) const = default;
};

// As many as bound the others: of a factor all buckets of decode, and of prompts the fewest and the most tokens.
std::vector<Limit> limitsOf(const model::Goal &goal, const Target &target);
// What decode may follow, where its gaps are held to an objective: how long each copies behind its tokens counts.
std::vector<PlayPoint> beforeDecode(const model::Goal &goal, const Target &target);
// Of one bucket, with as much in use as its sequences may have.
Limit limitOf(plan::IterationClass iterationClass, const cost::Bucket &bucket);
// What the goal asks of it, in nanoseconds; 0: nothing.
uint64_t limitNs(const model::Goal &goal, const Limit &limit);

} // namespace headrace::compiler
