// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/choose/Chooser.h"

namespace headrace::compiler {

void Chooser::spread(const std::vector<size_t> &of, std::vector<size_t> &placements, uint64_t budget) {
  if (!p_.policy.placements)
    return;
  std::sort(placements.begin(), placements.end());
  placements.erase(std::unique(placements.begin(), placements.end()), placements.end());
  // One candidate for each amount of memory: the fastest in the bucket that decides.
  const bool any = !p_.byObjective;
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
  // The end that moves least first: what a neighbour on the bus may ask for. One that has to offload something is
  // better found by the chain, nested with the others.
  const auto begin = [&](size_t candidate) {
    if (isOpen(candidate) && placements.size() < mostPlacements())
      placements.push_back(candidate);
  };
  const bool nothing = !ladder.empty() && candidates_[ladder.front()].offloadsNothing();
  if (!ladder.empty() && (nothing || !p_.chain))
    begin(ladder.front());
  std::vector<size_t> open;
  for (const size_t candidate : chainTo(of[decisive_], placements.size(), budget)) {
    if (open.empty() && !nothing)
      begin(candidate);
    open.push_back(candidate);
  }
  open.erase(std::remove_if(open.begin(), open.end(), [&](size_t candidate) { return !isOpen(candidate); }),
             open.end());
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

uint64_t Chooser::rangeNs(size_t chosen, uint64_t bytes) const {
  constexpr uint64_t kSlackPercent = 3;
  const Objective &bucket = p_.buckets[decisive_];
  const auto copiesNs = static_cast<uint64_t>(static_cast<double>(copiesNs_[chosen]) * static_cast<double>(bytes) /
                                              static_cast<double>(p_.movedBytes(candidates_[chosen])));
  const uint64_t ns = std::max(bucket.residentNs, copiesNs);
  return std::min(bucket.sloNs, ns + ns / 100 * kSlackPercent);
}

// Placements that offload units of each other fit together where each fits alone: the homes of the larger set have room
// in those of the smaller.
const Candidate *Chooser::within(size_t chosen) const { return p_.most == SIZE_MAX ? nullptr : &candidates_[chosen]; }

size_t Chooser::fewestMoved(size_t chosen, uint64_t budget, RangeStep &step) {
  constexpr uint64_t kFinest = 1024, kShare = 64; // of all bytes, of those found
  const Objective &bucket = p_.buckets[decisive_];
  const uint64_t most = p_.movedBytes(candidates_[chosen]);
  uint64_t low = 0, high = most;
  size_t best = kNone;
  while (high - low > std::max(most / kFinest, high / kShare) && ok()) {
    const uint64_t middle = low + (high - low) / 2;
    bool fits = false;
    for (const uint64_t ns : {rangeNs(chosen, middle), bucket.sloNs}) {
      const RangeStep tried{ns, middle};
      const absl::StatusOr<std::vector<Candidate>> found = p_.chain(bucket, {tried}, within(chosen));
      if (!found.ok()) {
        status_ = found.status();
        return kNone;
      }
      const size_t candidate = add(found->front());
      if (!meets(candidate, decisive_, budget))
        continue;
      best = candidate;
      step = tried;
      high = p_.movedBytes(candidates_[candidate]);
      fits = true;
      break;
    }
    if (!fits)
      low = middle;
  }
  return best;
}

std::vector<size_t> Chooser::chainTo(size_t chosen, size_t placed, uint64_t budget) {
  std::vector<size_t> found;
  const Objective &bucket = p_.buckets[decisive_];
  if (!p_.chain || bucket.sloNs <= bucket.residentNs || placed >= mostPlacements())
    return found;
  std::vector<RangeStep> steps;
  uint64_t least = 0;
  size_t first = kNone;
  const Evaluation *nothing = evaluate(0);
  if (nothing == nullptr)
    return found;
  if (nothing->arenaBytes > budget) {
    first = fewestMoved(chosen, budget, steps.emplace_back());
    if (first == kNone)
      return found;
    least = p_.movedBytes(candidates_[first]);
    steps.back().mostBytes = least;
    steps.back().leastFreed = static_cast<uint64_t>(freed_[first]);
  }
  const uint64_t most = p_.movedBytes(candidates_[chosen]);
  if (most <= least)
    return found;
  const size_t count = mostPlacements() - placed;
  for (size_t i = 1; i <= count; ++i) {
    const uint64_t bytes = least + (most - least) / (count + 1) * i;
    const uint64_t ns = rangeNs(chosen, bytes);
    steps.push_back({steps.empty() ? ns : std::max(ns, steps.front().sloNs), bytes});
  }
  absl::StatusOr<std::vector<Candidate>> chain = p_.chain(bucket, steps, within(chosen));
  if (!chain.ok()) {
    status_ = chain.status();
    return found;
  }
  for (size_t i = 0; i < chain->size(); ++i) {
    size_t candidate = add((*chain)[i]);
    if (i == 0 && first != kNone && !meets(candidate, decisive_, budget))
      candidate = first;
    if (freed_[candidate] < freed_[chosen] && meets(candidate, decisive_, budget))
      found.push_back(candidate);
  }
  return found;
}

} // namespace headrace::compiler
