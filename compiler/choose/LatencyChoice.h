// SPDX-License-Identifier: Apache-2.0
//
// The choice by latency (ChoosePlacement.h) for one compilation: what its candidates are, what each bucket is held
// against, and what the plan says about it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/choose/ChoosePlacement.h"
#include "compiler/evaluate/Prices.h"
#include "compiler/search/Generator.h"
#include "compiler/search/SearchPlacement.h"
#include "runtime/plan/Plan.h"

namespace headrace::compiler {

class LatencyChoice {
public:
  struct Inputs {
    const Generator *policy = nullptr;
    const CompileRequest *request = nullptr;
    const Target *target = nullptr;
    const model::WeightLayout *layout = nullptr;
    const PlacementFamily *family = nullptr;
    Prices *prices = nullptr;
    plan::Plan empty;              // of this compilation: no placement yet
    std::vector<PricedStep> steps; // of an iteration with nothing offloaded
    // If not null, all that there is to choose from, in place of the policy's candidates and of a search. `inOrder`:
    // each is better than those behind it.
    const std::vector<Candidate> *candidates = nullptr;
    bool inOrder = false;
    // Beside these, if not null: only how little memory they need is asked of them.
    std::function<std::vector<Candidate>()> smallest;
    // Compiles a candidate alone into a plan that is empty; with `gaps`, says what they are.
    std::function<absl::StatusOr<Evaluation>(const Candidate &, plan::Plan &, bool gaps)> evaluate;
  };
  explicit LatencyChoice(Inputs inputs) : in_(std::move(inputs)) {}

  // Whether there is more to choose than the first placement that fits: the goal has an objective, the policy states no
  // placement, or the plan is to have several placements.
  static bool applies(const CompileRequest &request, const Generator &policy);

  // The placements that the plan is to have, at most so many: what fits each alone may not fit together. Those of a
  // range that are not chosen for a bucket leave `rangeSpare` bytes of the device memory.
  absl::StatusOr<std::vector<Candidate>> choose(size_t most = SIZE_MAX, uint64_t rangeSpare = 0);
  // Buckets were chosen apart from each other, and `plan`, which has these placements, would keep a sequence waiting
  // for a token longer than its objective where one bucket follows another: with the transitions between them. From
  // then on choose() takes one placement for all.
  bool mustServeTogether(const plan::Plan &plan);
  // Plan::choices, reason and limiting resource, once the plan has its variants in their order.
  void record(plan::Plan &plan) const;

private:
  using Goals = std::vector<std::pair<const Objective *, uint64_t>>; // buckets, and what each may take
  absl::Status setBuckets();
  uint64_t hostBytes() const; // that there are
  // Takes those away whose units do not fit the host's memory; ResourceExhausted if that is all.
  absl::Status keepWhatHostHolds(std::vector<Candidate> &candidates);
  bool searches() const;
  bool gapsCount() const;                            // gaps between tokens are held to objectives
  const Objective &lookFor(const Objective &bucket); // reports that its placement is looked for; it, of buckets_
  void report();                                     // to CompileRequest::progress
  SearchRequest searchRequest(const Goals &goals, bool embedding) const; // may it be away
  absl::StatusOr<std::optional<Candidate>> search(const Goals &goals);
  absl::StatusOr<std::optional<Candidate>> searchAnew(const Goals &goals) const;
  absl::StatusOr<Evaluation> evaluate(const Candidate &candidate);
  std::vector<uint64_t> copiesOf(const Candidate &candidate) const;
  absl::StatusOr<std::vector<Candidate>> chain(const Objective &bucket, const std::vector<RangeStep> &steps,
                                               const Candidate *within) const;

  Inputs in_;
  uint32_t slowest_ = plan::kPredicted; // permille, of placements that move weights
  bool hostBinds_ = false;              // the host's memory does not hold all weights
  std::vector<Objective> buckets_;      // decode, then mixed
  ChosenPlacements chosen_;
  std::optional<BrokenGap> apart_; // why one placement serves all buckets
  // A refusal asks the same more than once.
  std::map<Goals, std::optional<Candidate>> searched_;
  std::vector<std::pair<Candidate, Evaluation>> evaluated_;
  CompileProgress progress_{.choosing = true};
};

} // namespace headrace::compiler
