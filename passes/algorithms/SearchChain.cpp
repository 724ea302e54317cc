// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/SearchChain.h"

#include <algorithm>
#include <limits>

namespace headrace::algorithms {
namespace {

class Chain {
public:
  Chain(const UnitProblem &problem, const std::vector<ChainGoal> &goals, double mostLoss)
      : goals_(goals), mostLoss_(mostLoss) {
    for (const OffloadableUnit &unit : problem.units)
      smallest_ = std::min(smallest_, unit.bytes);
    if (mostLoss <= 0)
      smallest_ = 0;
    for (const ChainGoal &goal : goals) {
      UnitProblem &scaled = problems_.emplace_back(problem);
      for (ScheduleTimes &schedule : scaled.schedules)
        for (ScheduleTimes::Bucket &bucket : schedule.buckets)
          bucket.sloNs = static_cast<uint64_t>(static_cast<double>(bucket.sloNs) * goal.sloFactor);
      free_.push_back(searchUnits(scaled, limitsOf(alone_.size())));
      alone_.push_back(free_.back() ? free_.back()->freedBytes : 0);
    }
  }

  std::vector<ChainLink> run() {
    std::vector<ChainLink> best;
    double bestShare = -1;
    for (size_t pivot = 0; pivot < goals_.size(); ++pivot) {
      if (!free_[pivot])
        continue;
      std::vector<ChainLink> links(goals_.size());
      links[pivot].placed = free_[pivot];
      for (size_t link = pivot; link-- > 0;)
        links[link] = nest(link, &links[link + 1], /*inside=*/true);
      for (size_t link = pivot + 1; link < goals_.size(); ++link)
        links[link] = nest(link, &links[link - 1], /*inside=*/false);
      mark(links);
      // The most links nested; of as many, what the worst frees.
      double worst = 1, share = 0;
      for (const ChainLink &link : links) {
        worst = std::min(worst, link.share);
        share += link.nested ? 1 : 0;
      }
      share += worst;
      if (share > bestShare) {
        bestShare = share;
        best = std::move(links);
      }
    }
    if (best.empty())
      best.resize(goals_.size()); // no goal can be met
    return best;
  }

private:
  SearchLimits limitsOf(size_t link) const {
    SearchLimits limits;
    limits.mostBytes = goals_[link].mostBytes;
    limits.full = goals_[link].full;
    limits.enough = goals_[link].enough;
    if (goals_[link].leastFreed > 0)
      limits.enoughFreed = goals_[link].leastFreed;
    return limits;
  }

  // A link inside or around its neighbour; the free one where that loses too much.
  ChainLink nest(size_t link, const ChainLink *neighbour, bool inside) const {
    ChainLink nested;
    if (!free_[link])
      return nested;
    nested.placed = free_[link];
    if (!neighbour->placed || (inside && neighbour->placed->units.empty() && free_[link]->units.empty()))
      return nested;
    SearchLimits limits = limitsOf(link);
    std::optional<UnitPlacement> placed;
    if (!inside) {
      limits.kept = neighbour->placed->units;
      placed = searchUnits(problems_[link], limits);
    } else if (!neighbour->placed->units.empty()) {
      limits.only = neighbour->placed->units;
      placed = searchUnits(problems_[link], limits);
    }
    const double loss = std::max(mostLoss_ * static_cast<double>(alone_[link]), static_cast<double>(smallest_));
    if (placed && placed->freedBytes >= std::min(goals_[link].leastFreed, alone_[link]) &&
        static_cast<double>(placed->freedBytes) + loss >= static_cast<double>(alone_[link])) {
      nested.share = alone_[link] ? static_cast<double>(placed->freedBytes) / static_cast<double>(alone_[link]) : 1;
      nested.placed = std::move(placed);
    }
    return nested;
  }

  static void mark(std::vector<ChainLink> &links) {
    const ChainLink *before = nullptr;
    for (ChainLink &link : links) {
      if (!link.placed)
        continue;
      link.nested = !before || std::includes(link.placed->units.begin(), link.placed->units.end(),
                                             before->placed->units.begin(), before->placed->units.end());
      before = &link;
    }
  }

  const std::vector<ChainGoal> &goals_;
  const double mostLoss_;
  uint64_t smallest_ = std::numeric_limits<uint64_t>::max();
  std::vector<UnitProblem> problems_;              // by goal
  std::vector<std::optional<UnitPlacement>> free_; // each goal for itself
  std::vector<uint64_t> alone_;                    // what it frees
};

} // namespace

std::vector<ChainLink> searchChain(const UnitProblem &problem, const std::vector<ChainGoal> &goals, double mostLoss) {
  return Chain(problem, goals, mostLoss).run();
}

} // namespace headrace::algorithms
