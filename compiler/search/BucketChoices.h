// SPDX-License-Identifier: Apache-2.0
//
// What each bucket of a plan is held against, and by which placement it is served.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/evaluate/PlayChoice.h"
#include "compiler/search/Objective.h"

namespace headrace::compiler {

// Iterations of all buckets, decode, then mixed; copies bring all that they may.
std::vector<PlayPoint> wholePoints(const Target &target);

// The objective of a bucket in ns: the goal's time for its class, or its factor of the resident time; 0: none.
uint64_t objectiveNs(const model::Goal &goal, bool decode, uint64_t residentNs);

// By bucket, decode, then mixed. The player plays the target's iterations.
absl::StatusOr<std::vector<Objective>> objectivesOf(Player &player, const Iterations &iterations);
// The largest bucket with an objective; a decode bucket where both classes have one.
size_t decisiveOf(const std::vector<Objective> &buckets);

// Says in the plan which variant serves each bucket: in the placement `of` it, whatever is in use of KV, of a cycle the
// slowest. Returns the decisive bucket's, and says what limits it.
const plan::Variant &recordChoices(const std::vector<Objective> &buckets, const std::vector<size_t> &of,
                                   plan::Plan &plan);

} // namespace headrace::compiler
