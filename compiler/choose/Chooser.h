// SPDX-License-Identifier: Apache-2.0
//
// What choosePlacements() works with: the candidates in their orders, each evaluated at most once.
//
//   Chooser.cpp          candidates, what a search finds, what meets an objective
//   ChoosePlacement.cpp  one placement for every bucket, then as few of them as the plan may have
//   ChooserTogether.cpp  one placement for all of them, where a change between them would break an objective
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
#include "compiler/choose/ChoosePlacement.h"
#include "compiler/search/ExplainObjective.h"

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
  // What the search finds that meets this objective once it is evaluated, by `evaluate`: the search knows what steps
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
  // Null once a candidate could not be evaluated.
  const Evaluation *evaluate(size_t candidate);
  bool meets(size_t candidate, size_t bucket, uint64_t budget);
  bool meetsAll(size_t candidate, uint64_t budget);
  // In this placement alone every bucket meets its objective, and so does every gap between tokens.
  bool holdsTogether(size_t candidate, uint64_t budget);
  // By how much buckets with an objective miss it so: 0 each if it holds.
  std::vector<uint64_t> missedTogether(const Evaluation &evaluation) const;
  // Of those that hold so the one that frees the most; of equals the fastest.
  size_t mostFreedTogether(uint64_t budget);
  // The same placement whose prompts leave the ring as decode finds it; kNone if it is such a one, or has no ring.
  size_t inOneCut(size_t candidate);
  std::optional<uint64_t> leastBytesTogether();
  // What a search finds that does; asked again for as much less as gaps were missed by.
  void searchTogether();
  // As policies without a latency objective choose.
  size_t firstThatFits(uint64_t budget);
  size_t mostPlacements() const {
    if (p_.onePlacement)
      return 1;
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
  // Nested placements up to the one chosen, evenly spread over the bytes that they move: from the fewest with which the
  // rest fits, which comes first. Each is as fast as it can be, give or take little: others on the bus may ask for its
  // time.
  std::vector<size_t> chainTo(size_t chosen, size_t placed, uint64_t budget);
  // Of placements on the way to the one chosen the one that moves the fewest bytes and fits, found by halves to a 64th
  // of them; kNone: none but the chosen one does. `step`: what it was found by.
  size_t fewestMoved(size_t chosen, uint64_t budget, RangeStep &step);
  // What a range's placements may offload: all, or where they did not fit together what the chosen one does.
  const Candidate *within(size_t chosen) const;
  // As long as a placement that moves so many bytes may take.
  uint64_t rangeNs(size_t chosen, uint64_t bytes) const;

  // The least that meets every bucket of a class within the budget: of each bucket the least, of these the most. None
  // where every bucket's objective is met.
  ClassMinimum leastOfClass(bool decode, uint64_t budget);
  // The least time of a bucket within the budget, and a placement that has it; kMost where nothing fits.
  struct Least {
    uint64_t ns = kMost;
    std::optional<Candidate> candidate;
  };
  Least leastOf(size_t bucket, uint64_t budget);
  // Lowers it by the candidates that were stated, as far as their copies alone take less than `copiesNs`.
  void lowerByStated(size_t bucket, uint64_t budget, uint64_t copiesNs, Least &least);
  // Lowers it to an objective at which the search finds what fits the budget, and at 1 ns less does not.
  void lowerBySearch(size_t bucket, uint64_t budget, Least &least);
  // What the search finds within an objective, held against the budget.
  struct Tried {
    std::optional<Candidate> fits; // that meets the objective, evaluated
    Evaluation evaluation;         // its
    int64_t shortNs = 0;           // about so much more time (less, where negative) would free what the budget asks for
  };
  Tried trySearch(size_t bucket, uint64_t budget, uint64_t sloNs);
  // Whether a bucket can be held within `ns`, by `known` or by the search.
  bool holdsWithin(size_t bucket, uint64_t budget, uint64_t ns, const Candidate *known);
  // The least memory in which every objective is met: of each bucket the least, of these the most; none where no memory
  // would do.
  std::optional<uint64_t> leastBytes();
  // What no placement goes below, and which one that is.
  MemoryMinimum leastOfAll();
  // With those that are not to choose from.
  void lowerBySmallest(MemoryMinimum &minimum);
  // The device memory in which an arena of so many bytes here would do.
  uint64_t memoryFor(uint64_t arena) const;
  absl::Status refusal();
  // Minima of classes alone, raised to what one instance that serves both can be held to.
  void raiseForGaps(ObjectiveMinima &minima);
  class Others; // goals
  // Each bucket can be held in a placement of its own, none holds all of them.
  absl::Status refusalTogether();

  const ChoiceProblem &p_;
  std::vector<Candidate> candidates_;                  // the problem's, then what was searched
  size_t stated_ = 0;                                  // the problem's
  std::vector<std::optional<Evaluation>> evaluations_; // by candidate, as are:
  std::vector<uint64_t> leastArena_, copiesNs_;
  std::vector<int64_t> freed_; // bytes; of candidates that are in order a figure that falls
  std::vector<size_t> byFreed_, byArena_, byCopies_;
  size_t decisive_ = 0;
  bool closely_ = true; // a placement for all buckets is searched again between what gaps miss and what they hold
  absl::Status status_;
};

} // namespace headrace::compiler
