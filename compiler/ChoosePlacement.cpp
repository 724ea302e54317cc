// SPDX-License-Identifier: Apache-2.0
#include "compiler/ChoosePlacement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "compiler/Explain.h"
#include "compiler/ExplainObjective.h"

namespace headrace::compiler {
namespace {

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kLongestNs = 1'000'000'000'000'000; // as long as an objective may be
constexpr int kSearches = 4;                           // for one objective

class Chooser {
public:
  explicit Chooser(const ChoiceProblem &problem) : p_(problem) {
    for (const Candidate &candidate : p_.candidates)
      add(candidate);
    stated_ = candidates_.size();
    // The largest bucket with an objective; a decode bucket where both classes have one.
    for (size_t b = 0; b < p_.buckets.size(); ++b) {
      const Objective &now = p_.buckets[b], &best = p_.buckets[decisive_];
      const auto rank = [](const Objective &o) { return 2 * (o.sloNs > 0) + o.decode; };
      if (rank(now) >= rank(best))
        decisive_ = b;
    }
  }

  absl::StatusOr<ChosenPlacements> run() {
    const uint64_t budget = p_.target->budget;
    std::vector<size_t> of(p_.buckets.size(), kNone);
    if (model::choosesByLatency(p_.policy.name)) {
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
    spread(of, others, budget);
    std::stable_sort(others.begin(), others.end(), [&](size_t a, size_t b) { return freed_[a] < freed_[b]; });
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
    chosen.compared = candidates_.size();
    chosen.compiled = static_cast<size_t>(
        std::count_if(evaluations_.begin(), evaluations_.end(), [](const auto &e) { return e.has_value(); }));
    return chosen;
  }

private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();

  bool ok() const { return status_.ok(); }

  size_t add(const Candidate &candidate) {
    for (size_t known = 0; known < candidates_.size(); ++known)
      if (candidates_[known].samePlacement(candidate))
        return known;
    const size_t index = candidates_.size();
    const MemoryNeed need = p_.family->need(candidate);
    candidates_.push_back(candidate);
    evaluations_.emplace_back();
    leastArena_.push_back(need.bytes - need.transients);
    freed_.push_back(freedBytes(*p_.family, candidate));
    copiesNs_.push_back(p_.copiesNs(candidate));
    // Behind its equals.
    const auto insert = [&](std::vector<size_t> &order, auto before) {
      order.insert(std::upper_bound(order.begin(), order.end(), index, before), index);
    };
    insert(byFreed_, [&](size_t a, size_t b) { return freed_[a] > freed_[b]; });
    insert(byArena_, [&](size_t a, size_t b) { return leastArena_[a] < leastArena_[b]; });
    insert(byCopies_, [&](size_t a, size_t b) { return copiesNs_[a] < copiesNs_[b]; });
    return index;
  }

  // What the search finds for a bucket; none where it finds nothing.
  std::optional<Candidate> searched(size_t bucket, uint64_t sloNs) {
    if (!p_.search || !ok())
      return std::nullopt;
    absl::StatusOr<std::optional<Candidate>> found = p_.search(p_.buckets[bucket], sloNs);
    if (!found.ok()) {
      status_ = found.status();
      return std::nullopt;
    }
    return *std::move(found);
  }

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
  const Evaluation *evaluate(size_t candidate) {
    if (!ok())
      return nullptr;
    std::optional<Evaluation> &known = evaluations_[candidate];
    if (!known) {
      absl::StatusOr<Evaluation> found = p_.evaluate(candidates_[candidate]);
      if (!found.ok()) {
        status_ = found.status();
        return nullptr;
      }
      known = *std::move(found);
    }
    return &*known;
  }
  bool meets(size_t candidate, size_t bucket, uint64_t budget) {
    if (p_.meets) {
      if (leastArena_[candidate] > budget || !p_.meets(candidates_[candidate], p_.buckets[bucket]))
        return false;
      const Evaluation *e = evaluate(candidate);
      return e != nullptr && e->arenaBytes <= budget;
    }
    if (copiesNs_[candidate] > p_.buckets[bucket].limit() || leastArena_[candidate] > budget)
      return false;
    const Evaluation *e = evaluate(candidate);
    return e != nullptr && e->arenaBytes <= budget && e->predictedNs[bucket] <= p_.buckets[bucket].limit();
  }

  // Of those that meet the bucket's objective within the budget the one that frees the most; of equals the fastest.
  size_t mostFreed(size_t bucket, uint64_t budget) {
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

  // As policies without a latency objective choose.
  size_t firstThatFits(uint64_t budget) {
    for (size_t candidate = 0; candidate < candidates_.size(); ++candidate)
      if (leastArena_[candidate] <= budget)
        if (const Evaluation *e = evaluate(candidate); e != nullptr && e->arenaBytes <= budget)
          return candidate;
    return kNone;
  }

  size_t mostPlacements() const {
    return std::min(
        p_.most, static_cast<size_t>(std::max<int64_t>(1, p_.policy.placements.value_or(model::kDefaultPlacements))));
  }

  // The most that one placement frees within all objectives.
  size_t mostFreedForAll(const std::vector<size_t> &of) {
    for (const size_t candidate : byFreed_) {
      bool all = true;
      for (size_t b = 0; b < of.size() && all && ok(); ++b)
        all = of[b] == kNone || meets(candidate, b, p_.target->budget);
      if (all)
        return candidate;
    }
    return kNone;
  }

  // At most `most` placements: takes away the one whose buckets lose the least freed memory by going to another that
  // holds them, as long as there is one. The one that decides stays, but for the one that holds all.
  void reduce(std::vector<size_t> &of, size_t most) {
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
            if (other != gone && meets(other, b, p_.target->budget) &&
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
              "[policy] placements is ", most, ": the objectives of all buckets need at least ", used.size(),
              " placements", p_.most != SIZE_MAX ? ", which do not fit the device memory together" : ""));
        return;
      }
      of = *std::move(best);
    }
  }

  // Others between the one that offloads the least within the budget and the one that frees the most, so that the plan
  // has as many as were asked for.
  void spread(const std::vector<size_t> &of, std::vector<size_t> &placements, uint64_t budget) {
    if (!p_.policy.placements)
      return;
    std::sort(placements.begin(), placements.end());
    placements.erase(std::unique(placements.begin(), placements.end()), placements.end());
    // One candidate for each amount of memory: the fastest in the bucket that decides.
    const bool any = !model::choosesByLatency(p_.policy.name);
    std::vector<size_t> ladder;
    for (auto at = byFreed_.rbegin(); at != byFreed_.rend() && ok(); ++at) {
      const size_t candidate = *at;
      if (freed_[candidate] < 0 || (!any && freed_[candidate] > freed_[of[decisive_]]) ||
          leastArena_[candidate] > budget)
        continue;
      const Evaluation *e = evaluate(candidate);
      if (e == nullptr || e->arenaBytes > budget || (!any && !meets(candidate, decisive_, budget)))
        continue;
      if (!ladder.empty() && freed_[ladder.back()] == freed_[candidate]) {
        if (e->predictedNs[decisive_] < evaluations_[ladder.back()]->predictedNs[decisive_])
          ladder.back() = candidate;
      } else {
        ladder.push_back(candidate);
      }
    }
    const auto isOpen = [&](size_t candidate) {
      return std::none_of(placements.begin(), placements.end(),
                          [&](size_t placed) { return freed_[placed] == freed_[candidate]; });
    };
    // The end that offloads least first: what a neighbour on the bus may ask for. One that has to offload something is
    // better found by the chain, nested with the others.
    if (!ladder.empty() && isOpen(ladder.front()) && placements.size() < mostPlacements() &&
        (!p_.chain || candidates_[ladder.front()].offloadsNothing()))
      placements.push_back(ladder.front());
    std::vector<size_t> open;
    for (const size_t candidate : chainTo(of[decisive_], placements.size(), budget))
      if (isOpen(candidate))
        open.push_back(candidate);
    if (open.empty()) // what is not nested takes more memory together than apart
      for (const size_t candidate : ladder)
        if (isOpen(candidate))
          open.push_back(candidate);
    // Then wherever the gap to what is there already is the widest.
    while (placements.size() < mostPlacements() && !open.empty()) {
      const auto gap = [&](size_t candidate) {
        int64_t least = std::numeric_limits<int64_t>::max();
        for (const size_t placed : placements)
          least = std::min(least, std::abs(freed_[placed] - freed_[candidate]));
        return least;
      };
      const auto widest =
          std::max_element(open.begin(), open.end(), [&](size_t a, size_t b) { return gap(a) < gap(b); });
      placements.push_back(*widest);
      open.erase(widest);
    }
  }

  // Nested placements up to the one chosen, evenly spread over the bytes that they move: from what has to be away for
  // the rest to fit. Each is as fast as it can be, give or take little: others on the bus may ask for its time.
  std::vector<size_t> chainTo(size_t chosen, size_t placed, uint64_t budget) {
    constexpr uint64_t kSlackPercent = 3;
    std::vector<size_t> found;
    const Objective &bucket = p_.buckets[decisive_];
    if (!p_.chain || bucket.sloNs <= bucket.residentNs || placed >= mostPlacements())
      return found;
    // Beside a ring, and a unit that does not fit in what is left, which is no larger than the ring.
    const uint64_t excess = leastArena_[0] > budget ? leastArena_[0] - budget : 0;
    const uint64_t least = excess > 0 ? excess + 2 * candidates_[chosen].ringBytes : 0;
    const uint64_t most = p_.movedBytes(candidates_[chosen]);
    if (most <= least)
      return found;
    const size_t count = mostPlacements() - placed;
    std::vector<RangeStep> steps;
    for (size_t i = excess > 0 ? 0 : 1; i <= count; ++i) {
      const uint64_t bytes = least + (most - least) / (count + 1) * i;
      const auto copiesNs = static_cast<uint64_t>(static_cast<double>(copiesNs_[chosen]) * static_cast<double>(bytes) /
                                                  static_cast<double>(most));
      const uint64_t ns = std::max(bucket.residentNs, copiesNs);
      steps.push_back({std::min(bucket.sloNs, ns + ns / 100 * kSlackPercent), bytes});
    }
    absl::StatusOr<std::vector<Candidate>> chain = p_.chain(bucket, steps);
    if (!chain.ok()) {
      status_ = chain.status();
      return found;
    }
    for (const Candidate &one : *chain) {
      const size_t candidate = add(one);
      if (freed_[candidate] < freed_[chosen] && meets(candidate, decisive_, budget))
        found.push_back(candidate);
    }
    return found;
  }

  // The least that meets every bucket of a class within the budget: of each bucket the least, of these the most.
  ClassMinimum leastOfClass(bool decode, uint64_t budget) {
    ClassMinimum minimum;
    for (size_t b = 0; b < p_.buckets.size() && ok(); ++b) {
      const Objective &bucket = p_.buckets[b];
      if (bucket.decode != decode || bucket.sloNs == 0)
        continue;
      uint64_t leastNs = kMost;
      size_t best = kNone;
      for (const size_t candidate : byCopies_) {
        if (copiesNs_[candidate] >= leastNs || leastNs <= bucket.residentNs)
          break;
        // Placements that a search found for the objective are not there when another is asked for.
        if (leastArena_[candidate] > budget || candidate >= stated_)
          continue;
        if (const Evaluation *e = evaluate(candidate);
            e != nullptr && e->arenaBytes <= budget && e->predictedNs[b] < leastNs) {
          leastNs = e->predictedNs[b];
          best = candidate;
        }
      }
      std::optional<Candidate> found;
      if (best != kNone)
        found = candidates_[best];
      lowerBySearch(b, budget, leastNs, found);
      if (!found)
        continue;
      const double factor = static_cast<double>(leastNs) / static_cast<double>(bucket.residentNs);
      minimum.missed |= leastNs > bucket.limit();
      const bool decides = p_.goal->sloFactor ? factor > minimum.factor : leastNs > minimum.ns;
      minimum.factor = std::max(minimum.factor, factor);
      minimum.ns = std::max(minimum.ns, leastNs);
      if (decides) {
        minimum.bucket = &bucket;
        minimum.candidate = found;
      }
    }
    return minimum;
  }

  // Lowers `leastNs` to the least objective at which the search finds what fits the budget: where the objective falls
  // from fitting to not fitting, by halves.
  void lowerBySearch(size_t bucket, uint64_t budget, uint64_t &leastNs, std::optional<Candidate> &candidate) {
    if (!p_.search || leastNs <= p_.buckets[bucket].residentNs)
      return;
    const auto fits = [&](uint64_t sloNs) -> std::optional<Candidate> {
      Evaluation last;
      return searchedWithin(bucket, sloNs, [&](const Candidate &found) -> const Evaluation * {
        const MemoryNeed need = p_.family->need(found);
        if (need.bytes - need.transients > budget)
          return nullptr;
        absl::StatusOr<Evaluation> e = p_.evaluate(found);
        if (!e.ok())
          status_ = e.status();
        if (!e.ok() || e->arenaBytes > budget)
          return nullptr;
        last = *std::move(e);
        return &last;
      });
    };
    uint64_t misses = p_.buckets[bucket].residentNs - 1, holds = leastNs;
    if (holds == kMost) { // nothing else fits: is there anything at all?
      holds = kLongestNs;
      candidate = fits(holds);
      if (!candidate)
        return;
    }
    while (holds - misses > 1 && ok()) {
      const uint64_t middle = misses + (holds - misses) / 2;
      if (std::optional<Candidate> found = fits(middle)) {
        holds = middle;
        candidate = std::move(found);
      } else {
        misses = middle;
      }
    }
    leastNs = holds;
  }

  // The least memory in which every objective is met: of each bucket the least, of these the most; none where no memory
  // would do.
  std::optional<uint64_t> leastBytes() {
    uint64_t most = 0;
    for (size_t b = 0; b < p_.buckets.size() && ok(); ++b) {
      if (p_.buckets[b].sloNs == 0)
        continue;
      uint64_t least = kMost;
      for (const size_t candidate : byArena_) {
        if (leastArena_[candidate] >= least)
          break;
        if (meets(candidate, b, kMost))
          least = std::min(least, evaluations_[candidate]->arenaBytes);
      }
      if (least == kMost)
        return std::nullopt;
      most = std::max(most, least);
    }
    return most;
  }

  // What no placement goes below, and which one that is.
  MemoryMinimum leastOfAll() {
    MemoryMinimum minimum{kMost, std::nullopt};
    if (const std::optional<Candidate> found = searched(decisive_, kLongestNs))
      add(*found);
    for (const size_t candidate : byArena_) {
      if (leastArena_[candidate] >= minimum.bytes)
        break;
      if (const Evaluation *e = evaluate(candidate); e != nullptr && e->arenaBytes < minimum.bytes)
        minimum = {e->arenaBytes, candidates_[candidate]};
    }
    return minimum;
  }

  absl::Status refusal() {
    ObjectiveMinima minima;
    minima.bytesAtAny = leastOfAll();
    if (ok() && (minima.bytesAtAny.bytes > p_.target->budget || !model::choosesByLatency(p_.policy.name))) {
      MemoryNeed need = p_.family->need(*minima.bytesAtAny.candidate);
      need.transients = need.transients + minima.bytesAtAny.bytes - need.bytes;
      need.bytes = minima.bytesAtAny.bytes;
      return absl::ResourceExhaustedError(
          explainExhausted(*p_.spec, *p_.target, p_.policy, *minima.bytesAtAny.candidate, need));
    }
    minima.decode = leastOfClass(true, p_.target->budget);
    minima.mixed = leastOfClass(false, p_.target->budget);
    minima.bytesAtObjective = leastBytes();
    if (!ok())
      return status_;
    return absl::ResourceExhaustedError(explainMissed(*p_.spec, *p_.target, *p_.goal, p_.policy.name, minima));
  }

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

} // namespace

uint64_t Objective::limit() const { return sloNs > 0 ? sloNs : kMost; }

uint64_t objectiveNs(const model::Goal &goal, bool decode, uint64_t residentNs) {
  if (goal.sloFactor)
    // A little more than the product, so that a factor that was written in decimals is not missed by its rounding.
    return static_cast<uint64_t>(std::floor(*goal.sloFactor * static_cast<double>(residentNs) + 1e-3));
  return decode ? goal.tpotNs.value_or(0) : goal.ttftNs.value_or(0);
}

int64_t freedBytes(const PlacementFamily &family, const Candidate &candidate) {
  Candidate none;
  const MemoryNeed all = family.need(none), need = family.need(candidate);
  return static_cast<int64_t>(all.weights) - static_cast<int64_t>(need.weights + need.slots);
}

absl::StatusOr<ChosenPlacements> choosePlacements(const ChoiceProblem &problem) { return Chooser(problem).run(); }

} // namespace headrace::compiler
