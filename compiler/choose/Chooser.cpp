// SPDX-License-Identifier: Apache-2.0
#include "compiler/choose/Chooser.h"

namespace headrace::compiler {

Chooser::Chooser(const ChoiceProblem &problem) : p_(problem) {
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

size_t Chooser::add(const Candidate &candidate) {
  for (size_t known = 0; known < candidates_.size(); ++known)
    if (candidates_[known].samePlacement(candidate))
      return known;
  const size_t index = candidates_.size();
  candidates_.push_back(candidate);
  evaluations_.emplace_back();
  leastArena_.push_back(p_.family->held(candidate).bytes);
  freed_.push_back(p_.inOrder
                       ? std::max<int64_t>(0, static_cast<int64_t>(p_.candidates.size()) - static_cast<int64_t>(index))
                       : freedBytes(*p_.family, candidate));
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

std::optional<Candidate> Chooser::searched(size_t bucket, uint64_t sloNs) {
  if (!p_.search || !ok())
    return std::nullopt;
  absl::StatusOr<std::optional<Candidate>> found = p_.search(p_.buckets[bucket], sloNs);
  if (!found.ok()) {
    status_ = found.status();
    return std::nullopt;
  }
  return *std::move(found);
}

const Evaluation *Chooser::evaluate(size_t candidate) {
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

bool Chooser::meets(size_t candidate, size_t bucket, uint64_t budget) {
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

size_t Chooser::firstThatFits(uint64_t budget) {
  for (size_t candidate = 0; candidate < candidates_.size(); ++candidate)
    if (leastArena_[candidate] <= budget)
      if (const Evaluation *e = evaluate(candidate); e != nullptr && e->arenaBytes <= budget)
        return candidate;
  return kNone;
}

} // namespace headrace::compiler
