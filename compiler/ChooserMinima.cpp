// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "compiler/Chooser.h"
#include "compiler/Explain.h"

namespace headrace::compiler {

ClassMinimum Chooser::leastOfClass(bool decode, uint64_t budget) {
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

void Chooser::lowerBySearch(size_t bucket, uint64_t budget, uint64_t &leastNs, std::optional<Candidate> &candidate) {
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

std::optional<uint64_t> Chooser::leastBytes() {
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

absl::Status Chooser::refusal() {
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

} // namespace headrace::compiler
