// SPDX-License-Identifier: Apache-2.0
//
// What a search makes small: the time of the iterations that requests will run, as one sum.
//
//   aim(choice) = sum over points of weight x time of an iteration there, in nanoseconds; weights add up to 1, or to
//                 one request's iterations where its lengths are stated
//
//   lengths not stated   decode of the whole batch at contexts of 2^k tokens, evenly in k: 256, 512, ... to the longest
//   stated               one full batch of such requests: their prompts one behind the other, in iterations of as many
//                        rows as the largest bucket of prompts has, which is how the engine takes them (Scheduler.h),
//                        and one decode iteration for every token of the output
//
// A batch of 2 at contexts up to 1,024: decode of 2 at 256, 512 and 1,024, each with weight 1/3. With a prompt of 3,000
// tokens, an output of 500 and chunks of 2,048, of 6,000 rows: 2,048 of one prompt, 952 and 1,096 of both, 1,904 of the
// other; and 500 decode iterations, which are taken at eight contexts from 3,001 to 3,500 with weight 62.5 each, as
// more than eight chunks are.
#pragma once

#include <string>
#include <vector>

#include "compiler/choice/Resolve.h"
#include "compiler/evaluate/PlayChoice.h"

namespace headrace::compiler {

// Of prompts' time what a chunk twice as large has to take less: all that decodes beside it waits for it, and what was
// prompted first has its tokens later.
inline constexpr double kChunkIsWorth = 0.02;

struct AimPoint {
  PlayPoint at;
  double weight = 1;
  bool operator==(const AimPoint &) const = default;
};

struct Aim {
  std::vector<AimPoint> points; // at least one
  std::string what;             // "decode of 2 at contexts of 256 to 1024 tokens"

  // Of prompts' time, what choices with larger chunks have to be better by.
  double chunkHandicap = 0;

  std::vector<PlayPoint> at() const;
  double of(const std::vector<Played> &played) const;       // one for each point
  double compared(const std::vector<Played> &played) const; // what choices are compared by
};

// The chunks of one sequence's prompt, each at the context that it ends at; of more than 64 as many neighbours of as
// many tokens as that takes together, at the context that the last of them ends at.
std::vector<AimPoint> promptPoints(int64_t prompt, const Target &target);

// Whether a goal says what is prompted, so that prompts have a say in the aim.
inline bool hasPrompts(const model::Goal &goal) { return goal.inputLen || goal.ttft; }

// What a policy in its own order goes by in all that its candidates leave open: its largest decode iteration, and among
// equals its largest iteration of prompts.
Aim aimInOrder(const Target &target);

// The points are of one mini-batch's buckets: a target of as many mini-batches has as many sequences at each all told.
Aim aimOf(const model::Goal &goal, const Target &target);

} // namespace headrace::compiler
