// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>

#include "compiler/choose/Chooser.h"
#include "compiler/search/Explain.h"
#include "runtime/model/ModelSpec.h"

namespace headrace::compiler {

ClassMinimum Chooser::leastOfClass(bool decode, uint64_t budget) {
  ClassMinimum minimum;
  std::vector<size_t> buckets;
  bool missed = false;
  for (size_t b = 0; b < p_.buckets.size() && ok(); ++b)
    if (p_.buckets[b].decode == decode && p_.buckets[b].sloNs > 0) {
      buckets.push_back(b);
      missed = missed || mostFreed(b, budget) == kNone;
    }
  // The largest first: where it decides, it is enough to know of the others that they can be held in less.
  std::optional<size_t> decides;
  for (auto at = buckets.rbegin(); at != buckets.rend() && missed && ok(); ++at) {
    const Objective &bucket = p_.buckets[*at];
    const auto factorOf = [&](uint64_t ns) { return static_cast<double>(ns) / static_cast<double>(bucket.residentNs); };
    if (decides) {
      uint64_t ns = minimum.ns; // the least that would decide in place of what does
      if (p_.goal->sloFactor) {
        ns = static_cast<uint64_t>(minimum.factor * static_cast<double>(bucket.residentNs));
        while (ns > 0 && factorOf(ns) >= minimum.factor)
          --ns;
        while (factorOf(ns) < minimum.factor)
          ++ns;
      }
      if (holdsWithin(*at, budget, ns - 1, minimum.candidate ? &*minimum.candidate : nullptr))
        continue;
    }
    Least least = leastOf(*at, budget);
    if (!least.candidate)
      continue;
    minimum.missed |= least.ns > bucket.limit();
    // Of equals the first.
    if (!decides || (p_.goal->sloFactor ? factorOf(least.ns) >= minimum.factor : least.ns >= minimum.ns)) {
      decides = *at;
      minimum.bucket = &bucket;
      minimum.candidate = std::move(least.candidate);
    }
    minimum.factor = std::max(minimum.factor, factorOf(least.ns));
    minimum.ns = std::max(minimum.ns, least.ns);
  }
  return minimum;
}

bool Chooser::holdsWithin(size_t bucket, uint64_t budget, uint64_t ns, const Candidate *known) {
  if (ns < p_.buckets[bucket].residentNs)
    return false;
  if (known) { // a goal that it decides has it among its candidates
    const Evaluation *e = evaluate(add(*known));
    if (e != nullptr && e->arenaBytes <= budget && e->predictedNs[bucket] <= ns)
      return true;
  }
  return p_.search && trySearch(bucket, budget, ns).fits.has_value();
}

Chooser::Least Chooser::leastOf(size_t bucket, uint64_t budget) {
  Least least;
  lowerByStated(bucket, budget, /*copiesNs=*/1, least);
  lowerBySearch(bucket, budget, least);
  const uint64_t searched = least.ns;
  lowerByStated(bucket, budget, kMost, least);
  if (least.ns < searched)
    lowerBySearch(bucket, budget, least);
  return least;
}

void Chooser::lowerByStated(size_t bucket, uint64_t budget, uint64_t copiesNs, Least &least) {
  uint64_t below = least.ns < kMost ? least.ns + 1 : kMost; // of equals one that was stated
  for (const size_t candidate : byCopies_) {
    if (copiesNs_[candidate] >= std::min(copiesNs, below) || below <= p_.buckets[bucket].residentNs)
      break;
    // Placements that a search found for the objective are not there when another is asked for.
    if (leastArena_[candidate] > budget || candidate >= stated_)
      continue;
    if (const Evaluation *e = evaluate(candidate);
        e != nullptr && e->arenaBytes <= budget && e->predictedNs[bucket] < below) {
      below = e->predictedNs[bucket];
      least = {below, candidates_[candidate]};
    }
  }
}

Chooser::Tried Chooser::trySearch(size_t bucket, uint64_t budget, uint64_t sloNs) {
  Tried tried;
  tried.fits = searchedWithin(bucket, sloNs, [&](const Candidate &found) -> const Evaluation * {
    const int64_t needed =
        static_cast<int64_t>(p_.family->need(candidates_[0]).bytes) - freed_[0] - static_cast<int64_t>(budget);
    const uint64_t moved = p_.movedBytes(found);
    if (moved > 0)
      tried.shortNs = static_cast<int64_t>(static_cast<double>(needed - freedBytes(*p_.family, found)) *
                                           static_cast<double>(p_.copiesNs(found)) / static_cast<double>(moved));
    if (p_.family->held(found).bytes > budget)
      return nullptr;
    absl::StatusOr<Evaluation> e = p_.evaluate(found);
    if (!e.ok())
      status_ = e.status();
    if (!e.ok() || e->arenaBytes > budget)
      return nullptr;
    tried.evaluation = *std::move(e);
    return &tried.evaluation;
  });
  return tried;
}

// Between an objective that misses and one that holds the search says about how much it is short by. Just below what
// takes its time exactly there is, mostly, nothing else that fits.
void Chooser::lowerBySearch(size_t bucket, uint64_t budget, Least &least) {
  if (!p_.search || least.ns <= p_.buckets[bucket].residentNs)
    return;
  uint64_t misses = p_.buckets[bucket].residentNs - 1, holds = least.ns, takes = least.ns; // takes: what holds takes
  int64_t shortNs = 0;
  if (holds == kMost) { // nothing else fits: is there anything at all?
    Tried any = trySearch(bucket, budget, kLongestNs);
    if (!any.fits)
      return;
    least = {kLongestNs, std::move(any.fits)};
    holds = kLongestNs;
    takes = any.evaluation.predictedNs[bucket];
    shortNs = any.shortNs;
  }
  uint64_t step = 1, spread = holds - misses;
  int tries = 0;    // since what is open was halved
  bool last = true; // whether the last one held
  while (holds - misses > 1 && ok()) {
    uint64_t next = misses + (holds - misses) / 2;
    const bool within = takes > misses && takes <= holds;
    if (holds - misses <= spread / 2) {
      spread = holds - misses;
      tries = 0;
    }
    const auto shortBy = static_cast<uint64_t>(std::abs(shortNs));
    if (tries >= 4 || !within) {
      // by halves
    } else if (last) {
      const uint64_t less = shortNs < 0 ? std::max(step, shortBy) : step;
      next = takes > less ? takes - less : 0;
      step *= 16;
    } else if (takes == misses + 1) {
      next = takes;
    } else {
      next = shortNs > 0 && shortBy < takes - misses ? misses + shortBy : takes - 1;
    }
    next = std::clamp(next, misses + 1, holds - 1);
    Tried tried = trySearch(bucket, budget, next);
    last = tried.fits.has_value();
    shortNs = tried.shortNs;
    ++tries;
    if (last) {
      holds = next;
      takes = std::min(next, tried.evaluation.predictedNs[bucket]);
      least = {next, std::move(tried.fits)};
    } else {
      misses = next;
    }
  }
}

std::optional<uint64_t> Chooser::leastBytes() {
  if (p_.gaps)
    return leastBytesTogether();
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

MemoryMinimum Chooser::leastOfAll() {
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

void Chooser::lowerBySmallest(MemoryMinimum &minimum) {
  if (!p_.smallest)
    return;
  for (const Candidate &candidate : p_.smallest()) {
    if (!ok() || p_.family->held(candidate).bytes >= minimum.bytes)
      continue;
    const absl::StatusOr<Evaluation> e = p_.evaluate(candidate);
    if (!e.ok())
      status_ = e.status();
    else if (e->arenaBytes < minimum.bytes)
      minimum = {e->arenaBytes, candidate};
  }
}

uint64_t Chooser::memoryFor(uint64_t arena) const { return p_.target->leastMemoryFor(arena, p_.spec->layers); }

absl::Status Chooser::refusal() {
  ObjectiveMinima minima;
  minima.bytesAtAny = leastOfAll();
  if (ok() && (minima.bytesAtAny.bytes > p_.target->deviceMemory || !p_.byObjective)) {
    MemoryNeed need = p_.family->need(*minima.bytesAtAny.candidate);
    need.transients = need.transients + minima.bytesAtAny.bytes - need.bytes;
    need.bytes = minima.bytesAtAny.bytes;
    return deviceMemoryExhausted(*p_.spec, *p_.target, p_.policy, *minima.bytesAtAny.candidate, need);
  }
  minima.decode = leastOfClass(true, p_.target->deviceMemory);
  minima.mixed = leastOfClass(false, p_.target->deviceMemory);
  raiseForGaps(minima);
  minima.ofMemory = !p_.splitCaches; // with other amounts of it other blocks would be there
  if (minima.ofMemory) {
    minima.bytesAtObjective = leastBytes();
    if (minima.bytesAtObjective)
      minima.bytesAtObjective = memoryFor(*minima.bytesAtObjective);
    lowerBySmallest(minima.bytesAtAny);
    minima.bytesAtAny.bytes = memoryFor(minima.bytesAtAny.bytes);
  }
  if (!ok())
    return status_;
  const bool prompts = p_.goal->ttft && minima.mixed.missed && !minima.decode.missed;
  return missed(explainMissed(*p_.spec, *p_.target, *p_.goal, p_.policy.name, minima),
                std::chrono::nanoseconds(prompts ? minima.mixed.ns : 0));
}

} // namespace headrace::compiler
