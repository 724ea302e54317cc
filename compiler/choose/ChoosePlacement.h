// SPDX-License-Identifier: Apache-2.0
//
// The choice by latency: for every bucket the placement that frees the most device memory while the iteration, as the
// simulator plays its schedule, meets the bucket's objective and the placement fits the budget.
//
//   freed = bytes of offloaded weights, and of KV blocks at home on the host - bytes of slots
//
// The candidates are compared by what their schedules do, not by a formula; a candidate is evaluated only where
// bounds (its copies alone take longer than the objective; it frees less than one that was found) leave it open.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/evaluate/Placements.h"
#include "compiler/search/BucketChoices.h"
#include "compiler/search/ExplainObjective.h"
#include "compiler/search/Objective.h"

namespace headrace::compiler {

// A candidate once it was evaluated (Evaluate.h) and played. Times in the order of Target::decode, then Target::mixed.
struct Evaluation {
  uint64_t arenaBytes = 0;
  std::vector<uint64_t> predictedNs;
  // The longest gap before the tokens of a bucket where this placement serves all of them (sim::TokenGaps); 0 for those
  // with prompts. Empty where ChoiceProblem::gaps is not set.
  std::vector<uint64_t> gapNs;
};

// A placement of a range: within this time, moving at most these bytes; freeing these, if not 0, and no more.
struct RangeStep {
  uint64_t sloNs = 0;
  uint64_t mostBytes = 0;
  uint64_t leastFreed = 0;
};

struct ChoiceProblem {
  const model::ModelSpec *spec = nullptr;
  const Target *target = nullptr;
  const model::Goal *goal = nullptr;
  bool gaps = false; // evaluations have gaps: an instance serves all buckets, and each gap is held to its objective
  // Set: one placement serves all buckets, within their objectives gaps included, as with one for each this gap is not.
  std::optional<BrokenGap> apart;
  model::Policy policy;              // as asked for, its name the policy's own
  bool byObjective = true;           // Order::MostFreed
  bool onePlacement = false;         // Generator
  size_t most = SIZE_MAX;            // placements at the most: what fits each alone may not fit together
  uint64_t rangeSpare = 0;           // bytes that a range leaves: what placements take more together than each alone
  std::vector<Candidate> candidates; // what there is to choose from; the first offloads the least
  bool inOrder = false;              // each is better than those behind it, whatever it frees
  bool splitCaches = false;          // they have KV blocks at home on the host: how many, others decided
  // Not to choose from: what a refusal says of memory counts them. Null: none.
  std::function<std::vector<Candidate>()> smallest;
  std::vector<Objective> buckets; // decode, then mixed
  const PlacementFamily *family = nullptr;
  std::function<absl::StatusOr<Evaluation>(const Candidate &)> evaluate; // asked again for what it has answered
  std::function<uint64_t(const Candidate &)> copiesNs;   // what its copies take, alone: no iteration is shorter
  std::function<uint64_t(const Candidate &)> movedBytes; // host to device, by these copies
  // Placements for the bucket, one a step (which do not fall), nested where that frees as much; if `within` is not null
  // none offloads what that one does not. Null: no such thing.
  std::function<absl::StatusOr<std::vector<Candidate>>(const Objective &, const std::vector<RangeStep> &,
                                                       const Candidate *within)>
      chain;
  // Decides in place of the predicted time whether a candidate meets a bucket's objective (FlexGen's own estimate).
  std::function<bool(const Candidate &, const Objective &)> meets;
  // The placement of single units that frees the most within sloNs for this bucket (SearchPlacement.h); none where
  // nothing meets it. Null: the candidates above are all there is.
  std::function<absl::StatusOr<std::optional<Candidate>>(const Objective &, uint64_t sloNs)> search;
  // The same for all buckets at once: one objective a bucket, 0 where it has none.
  std::function<absl::StatusOr<std::optional<Candidate>>(const std::vector<uint64_t> &sloNs)> searchTogether;
};

struct ChosenPlacements {
  std::vector<Candidate> placements;  // first the one of the bucket that decides: the largest with an objective
  std::vector<size_t> of;             // by bucket, into placements
  size_t decisive = 0;                // that bucket
  size_t compared = 0, evaluated = 0; // candidates
  bool inOrder = false;               // as the problem says
};

// ResourceExhausted with the minima that would do where some bucket's objective cannot be met. Policies that do not
// choose by latency give their placement whatever it takes.
absl::StatusOr<ChosenPlacements> choosePlacements(const ChoiceProblem &problem);

// Bytes that a candidate gives back (see above).
int64_t freedBytes(const PlacementFamily &family, const Candidate &candidate);

} // namespace headrace::compiler
