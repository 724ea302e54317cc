// SPDX-License-Identifier: Apache-2.0
//
// What choosePlacements() works with: the candidates in their orders, each compiled at most once.
//
//   Chooser.cpp          candidates, what a search finds, what meets an objective
//   ChoosePlacement.cpp  one placement for every bucket, then as few of them as the plan may have
//   ChooserRange.cpp     others between them
//   ChooserMinima.cpp    what would do where nothing does
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ChoosePlacement.h"
#include "compiler/ExplainObjective.h"

namespace headrace::compiler {

class Chooser {
public:
  explicit Chooser(const ChoiceProblem &problem);
  absl::StatusOr<ChosenPlacements> run();

private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  static constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  static constexpr uint64_t kLongestNs = 1'000'000'000'000'000; // as long as an objective may be
  static constexpr int kSearches = 4;                           // for one objective

  bool ok() const { return status_.ok(); }

  size_t add(const Candidate &candidate);
  // What the search finds for a bucket; none where it finds nothing.
  std::optional<Candidate> searched(size_t bucket, uint64_t sloNs);
  // What the search finds that meets this objective once it is compiled, by `evaluate`: the search knows what steps
  // take alone, so where they disturb each other it is asked again, for as much less as was missed.
  template <class Evaluate>
  std::optional<Candidate> searchedWithin(size_t bucket, uint64_t sloNs, Evaluate &&evaluate) {
    uint64_t asked = sloNs;
    for (int tries = 0; tries < kSearches; ++tries) {
      std::optional<Candidate> found = searched(bucket, asked);
      const Evaluation *e = found ? evaluate(*found) : nullptr;
      if (e == nullptr)
        return std::nullopt;
      const uint64_t ns = e->predictedNs[bucket];
      if (ns <= sloNs)
        return found;
      if (ns - sloNs >= asked)
        return std::nullopt;
      asked -= ns - sloNs;
    }
    return std::nullopt;
  }
  // Null once a candidate could not be compiled.
  const Evaluation *evaluate(size_t candidate);
  bool meets(size_t candidate, size_t bucket, uint64_t budget);
  // As policies without a latency objective choose.
  size_t firstThatFits(uint64_t budget);
  size_t mostPlacements() const {
    return std::min(
        p_.most, static_cast<size_t>(std::max<int64_t>(1, p_.policy.placements.value_or(model::kDefaultPlacements))));
  }

  // Of those that meet the bucket's objective within the budget the one that frees the most; of equals the fastest.
  size_t mostFreed(size_t bucket, uint64_t budget);
  // The most that one placement frees within all objectives.
  size_t mostFreedForAll(const std::vector<size_t> &of);
  // At most `most` placements: takes away the one whose buckets lose the least freed memory by going to another that
  // holds them, as long as there is one. The one that decides stays, but for the one that holds all.
  void reduce(std::vector<size_t> &of, size_t most);

  // Others between the one that offloads the least within the budget and the one that frees the most, so that the plan
  // has as many as were asked for.
  void spread(const std::vector<size_t> &of, std::vector<size_t> &placements, uint64_t budget);
  // Nested placements up to the one chosen, evenly spread over the bytes that they move: from what has to be away for
  // the rest to fit. Each is as fast as it can be, give or take little: others on the bus may ask for its time.
  std::vector<size_t> chainTo(size_t chosen, size_t placed, uint64_t budget);

  // The least that meets every bucket of a class within the budget: of each bucket the least, of these the most.
  ClassMinimum leastOfClass(bool decode, uint64_t budget);
  // Lowers `leastNs` to the least objective at which the search finds what fits the budget: where the objective falls
  // from fitting to not fitting, by halves.
  void lowerBySearch(size_t bucket, uint64_t budget, uint64_t &leastNs, std::optional<Candidate> &candidate);
  // The least memory in which every objective is met: of each bucket the least, of these the most; none where no memory
  // would do.
  std::optional<uint64_t> leastBytes();
  // What no placement goes below, and which one that is.
  MemoryMinimum leastOfAll();
  absl::Status refusal();

  const ChoiceProblem &p_;
  std::vector<Candidate> candidates_;                  // the problem's, then what was searched
  size_t stated_ = 0;                                  // the problem's
  std::vector<std::optional<Evaluation>> evaluations_; // by candidate, as are:
  std::vector<uint64_t> leastArena_, copiesNs_;
  std::vector<int64_t> freed_;
  std::vector<size_t> byFreed_, byArena_, byCopies_;
  size_t decisive_ = 0;
  absl::Status status_;
};

} // namespace headrace::compiler
