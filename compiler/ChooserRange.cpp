// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/Chooser.h"

namespace headrace::compiler {

void Chooser::spread(const std::vector<size_t> &of, std::vector<size_t> &placements, uint64_t budget) {
  if (!p_.policy.placements)
    return;
  std::sort(placements.begin(), placements.end());
  placements.erase(std::unique(placements.begin(), placements.end()), placements.end());
  // One candidate for each amount of memory: the fastest in the bucket that decides.
  const bool any = !model::choosesByLatency(p_.policy.name);
  std::vector<size_t> ladder;
  for (auto at = byFreed_.rbegin(); at != byFreed_.rend() && ok(); ++at) {
    const size_t candidate = *at;
    if (freed_[candidate] < 0 || (!any && freed_[candidate] > freed_[of[decisive_]]) || leastArena_[candidate] > budget)
      continue;
    const Evaluation *e = evaluate(candidate);
    if (e == nullptr || e->arenaBytes > budget || (!any && !meets(candidate, decisive_, budget)))
      continue;
    if (!ladder.empty() && freed_[ladder.back()] == freed_[candidate]) {
      // Of equals the earlier: it offloads less.
      if (std::pair(e->predictedNs[decisive_], candidate) <
          std::pair(evaluations_[ladder.back()]->predictedNs[decisive_], ladder.back()))
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
    const auto widest = std::max_element(open.begin(), open.end(), [&](size_t a, size_t b) { return gap(a) < gap(b); });
    placements.push_back(*widest);
    open.erase(widest);
  }
}

std::vector<size_t> Chooser::chainTo(size_t chosen, size_t placed, uint64_t budget) {
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

} // namespace headrace::compiler
