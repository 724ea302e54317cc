// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/ChoosePlacement.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "compiler/choose/Chooser.h"

namespace headrace::compiler {

absl::StatusOr<ChosenPlacements> Chooser::run() {
  const uint64_t budget = p_.target->deviceMemory;
  std::vector<size_t> of(p_.buckets.size(), kNone);
  if (p_.apart) {
    const size_t one = mostFreedTogether(budget);
    if (ok() && one == kNone)
      return refusalTogether();
    of.assign(of.size(), one);
  } else if (p_.byObjective) {
    for (size_t b = 0; b < p_.buckets.size() && ok(); ++b)
      if (p_.buckets[b].sloNs > 0)
        (void)searchedWithin(b, p_.buckets[b].sloNs, [&](const Candidate &found) { return evaluate(add(found)); });
    for (size_t b = 0; b < p_.buckets.size() && ok(); ++b)
      if (p_.buckets[b].sloNs > 0)
        of[b] = mostFreed(b, budget);
    for (size_t b = 0; b < p_.buckets.size() && ok(); ++b)
      if (p_.buckets[b].sloNs > 0 && of[b] == kNone) {
        if (p_.meets) // a baseline: what the memory demands is more than its estimate allows
          of[b] = firstThatFits(budget);
        if (of[b] == kNone)
          return refusal();
      }
    if (ok())
      reduce(of, mostPlacements());
  } else {
    of[decisive_] = firstThatFits(budget);
  }
  if (ok() && of[decisive_] == kNone && p_.buckets[decisive_].sloNs == 0)
    of[decisive_] = firstThatFits(budget); // an objective of a class that has no buckets
  if (!ok())
    return status_;
  if (of[decisive_] == kNone)
    return refusal();
  // A class without an objective takes what the deciding bucket has: nothing to change between iterations.
  for (size_t &chosen : of)
    chosen = chosen == kNone ? of[decisive_] : chosen;
  std::vector<size_t> placements{of[decisive_]};
  std::vector<size_t> others(of);
  spread(of, others, budget - std::min(budget, p_.rangeSpare));
  std::stable_sort(others.begin(), others.end(),
                   [&](size_t a, size_t b) { return p_.inOrder ? freed_[a] > freed_[b] : freed_[a] < freed_[b]; });
  for (const size_t candidate : others)
    if (std::find(placements.begin(), placements.end(), candidate) == placements.end())
      placements.push_back(candidate);
  if (!status_.ok())
    return status_;

  ChosenPlacements chosen;
  for (const size_t candidate : placements)
    chosen.placements.push_back(candidates_[candidate]);
  for (const size_t candidate : of)
    chosen.of.push_back(
        static_cast<size_t>(std::find(placements.begin(), placements.end(), candidate) - placements.begin()));
  chosen.decisive = decisive_;
  chosen.inOrder = p_.inOrder;
  chosen.compared = candidates_.size();
  chosen.evaluated = static_cast<size_t>(
      std::count_if(evaluations_.begin(), evaluations_.end(), [](const auto &e) { return e.has_value(); }));
  return chosen;
}

size_t Chooser::mostFreed(size_t bucket, uint64_t budget) {
  size_t best = kNone;
  for (const size_t candidate : byFreed_) {
    if (best != kNone && freed_[candidate] < freed_[best])
      break;
    if (meets(candidate, bucket, budget) &&
        (best == kNone || evaluations_[candidate]->predictedNs[bucket] < evaluations_[best]->predictedNs[bucket]))
      best = candidate;
  }
  return best;
}

size_t Chooser::mostFreedForAll(const std::vector<size_t> &of) {
  for (const size_t candidate : byFreed_) {
    bool all = true;
    for (size_t b = 0; b < of.size() && all && ok(); ++b)
      all = of[b] == kNone || meets(candidate, b, p_.target->deviceMemory);
    if (all)
      return candidate;
  }
  return kNone;
}

void Chooser::reduce(std::vector<size_t> &of, size_t most) {
  std::optional<size_t> common;
  for (;;) {
    std::vector<size_t> used;
    for (const size_t candidate : of)
      if (candidate != kNone && std::find(used.begin(), used.end(), candidate) == used.end())
        used.push_back(candidate);
    if (used.size() <= most)
      return;
    if (!common)
      common = mostFreedForAll(of);
    if (most == 1 && *common != kNone) {
      for (size_t &candidate : of)
        candidate = candidate == kNone ? kNone : *common;
      return;
    }
    std::optional<std::vector<size_t>> best;
    double bestLoss = 0;
    std::vector<size_t> others = used;
    if (*common != kNone)
      others.push_back(*common);
    for (const size_t gone : used) {
      if (gone == of[decisive_] || gone == *common)
        continue;
      std::vector<size_t> without = of;
      double loss = 0;
      bool held = true;
      for (size_t b = 0; b < of.size() && held && ok(); ++b) {
        if (of[b] != gone)
          continue;
        without[b] = kNone;
        for (const size_t other : others)
          if (other != gone && meets(other, b, p_.target->deviceMemory) &&
              (without[b] == kNone || freed_[other] > freed_[without[b]]))
            without[b] = other;
        held = without[b] != kNone;
        if (held)
          loss += static_cast<double>(freed_[gone] - freed_[without[b]]);
      }
      if (held && (!best || loss < bestLoss)) {
        best = std::move(without);
        bestLoss = loss;
      }
    }
    if (!ok())
      return;
    if (!best) {
      if (p_.policy.placements || p_.most != SIZE_MAX)
        status_ = absl::ResourceExhaustedError(absl::StrCat(
            "policy.placements = ", most, ": expected more: the objectives of all buckets need at least ", used.size(),
            " placements", p_.most != SIZE_MAX ? ", which do not fit the device memory together" : ""));
      return;
    }
    of = *std::move(best);
  }
}

int64_t freedBytes(const PlacementFamily &family, const Candidate &candidate) {
  Candidate none;
  const MemoryNeed all = family.held(none), need = family.held(candidate);
  return static_cast<int64_t>(all.weights + all.kv) - static_cast<int64_t>(need.weights + need.kv + need.slots);
}

absl::StatusOr<ChosenPlacements> choosePlacements(const ChoiceProblem &problem) { return Chooser(problem).run(); }

} // namespace headrace::compiler
