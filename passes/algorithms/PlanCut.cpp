// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/PlanCut.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace headrace::algorithms {
namespace {

// Positions tried inside a unit at a time, and how often the search narrows down to the best of them.
constexpr uint64_t kGrid = 16;
constexpr int kNarrowings = 3;

// What a cut costs over all buckets; less is better.
struct Score {
  double worst = 0; // the largest ratio of iteration time to its bound
  uint64_t sum = 0; // of iteration times
  bool operator<(const Score &other) const { return worst != other.worst ? worst < other.worst : sum < other.sum; }
};

// Compute steps between which nothing is waited for and of whose ends only the last is asked, taken as one. Many cuts
// are played, and most steps are such.
class Stretches {
public:
  explicit Stretches(const CutProblem &problem) {
    for (const CutUnit &unit : problem.units) {
      begins_.push_back(unit.firstUse);
      for (int64_t end : {unit.freeAfter, unit.tailFreeAfter, unit.writtenBackAfter})
        begins_.push_back(static_cast<uint64_t>(end + 1)); // -1, no step, is 0
    }
    for (absl::Span<const uint64_t> durations : problem.computeNs)
      begins_.insert(begins_.end(), {0, durations.size()});
    std::sort(begins_.begin(), begins_.end());
    begins_.erase(std::unique(begins_.begin(), begins_.end()), begins_.end());
  }

  // Of the stretch that begins with a step, and of the one that ends with it; -1 stays.
  uint32_t from(uint32_t step) const { return static_cast<uint32_t>(indexOf(step)); }
  int64_t to(int64_t step) const { return indexOf(static_cast<uint64_t>(step + 1)) - 1; }

  std::vector<uint64_t> sums(absl::Span<const uint64_t> durations) const {
    std::vector<uint64_t> sums;
    for (size_t i = 0; i < begins_.size() && begins_[i] < durations.size(); ++i) {
      const uint64_t end = i + 1 < begins_.size() ? begins_[i + 1] : durations.size();
      sums.push_back(std::accumulate(durations.begin() + begins_[i], durations.begin() + end, uint64_t{0}));
    }
    return sums;
  }

private:
  int64_t indexOf(uint64_t begin) const {
    return std::lower_bound(begins_.begin(), begins_.end(), begin) - begins_.begin();
  }

  std::vector<uint64_t> begins_; // ascending
};

// Its steps are stretches.
class Planner {
public:
  explicit Planner(const CutProblem &problem) : problem_(problem), units_(problem.units) {
    uint64_t link = 0, back = 0;
    for (const CutUnit &unit : problem.units) {
      copyNs_.push_back(problem.copyNs(unit.bytes));
      link += copyNs_.back();
      writeBackNs_.push_back(unit.writtenBackAfter < 0 ? 0 : problem.writeBackNs(unit.bytes));
      back += writeBackNs_.back();
    }
    const Stretches stretches(problem);
    for (CutUnit &unit : units_) {
      unit.firstUse = stretches.from(unit.firstUse);
      for (int64_t *end : {&unit.freeAfter, &unit.tailFreeAfter, &unit.writtenBackAfter})
        *end = stretches.to(*end);
    }
    size_t steps = 0;
    for (absl::Span<const uint64_t> durations : problem.computeNs) {
      computeNs_.push_back(stretches.sums(durations));
      const uint64_t compute = std::accumulate(computeNs_.back().begin(), computeNs_.back().end(), uint64_t{0});
      bounds_.push_back(std::max<uint64_t>(1, std::max({compute, link, back})));
      steps = std::max(steps, computeNs_.back().size());
    }
    ends_.resize(steps);
    atHome_.resize(problem.units.size());
  }

  // One iteration, step by step: before a step, the copies up to the unit that it needs are played; a copy starts when
  // the link is free and its range is. Behind a step, what is written back once it has ended.
  uint64_t play(size_t bucket, const Cut &cut) {
    const std::vector<uint64_t> &durations = computeNs_[bucket];
    const std::vector<CutUnit> &units = units_;
    size_t next = cut.units; // the unit whose copy comes next
    size_t written = 0;      // the unit that is written back next
    uint64_t link = 0, back = 0, compute = 0;
    std::fill(atHome_.begin(), atHome_.end(), 0);
    for (size_t step = 0; step < durations.size(); ++step) {
      while (next < units.size() && units[next].firstUse <= step) {
        uint64_t ns = next == cut.units && cut.bytes ? problem_.copyNs(units[next].bytes - cut.bytes) : copyNs_[next];
        link = std::max({link, endOf(units[next].freeAfter), homeOf(units[next].heldBefore)}) + ns;
        compute = std::max(compute, link);
        ++next;
      }
      compute += durations[step];
      ends_[step] = compute;
      for (; written < units.size() && units[written].writtenBackAfter <= static_cast<int64_t>(step); ++written)
        if (units[written].writtenBackAfter >= 0)
          atHome_[written] = back = std::max(back, endOf(units[written].writtenBackAfter)) + writeBackNs_[written];
    }
    const auto free = [&](size_t unit) {
      return std::max({endOf(units[unit].tailFreeAfter), homeOf(units[unit].heldLast), atHome_[unit]});
    };
    for (size_t unit = 0; unit < cut.units; ++unit)
      link = std::max(link, free(unit)) + copyNs_[unit];
    if (cut.bytes)
      link = std::max(link, free(cut.units)) + problem_.copyNs(cut.bytes);
    return std::max({link, back, compute});
  }

  Score score(const Cut &cut) {
    Score score;
    for (size_t bucket = 0; bucket < problem_.computeNs.size(); ++bucket) {
      uint64_t ns = play(bucket, cut);
      score.worst = std::max(score.worst, static_cast<double>(ns) / static_cast<double>(bounds_[bucket]));
      score.sum += ns;
    }
    return score;
  }

private:
  // When a unit has been written back; 0 where it is not, or there is none.
  uint64_t homeOf(int64_t unit) const { return unit < 0 ? 0 : atHome_[static_cast<size_t>(unit)]; }
  uint64_t endOf(int64_t step) const { return step < 0 ? 0 : ends_[static_cast<size_t>(step)]; }

  const CutProblem &problem_;
  std::vector<CutUnit> units_;
  std::vector<std::vector<uint64_t>> computeNs_; // by bucket
  std::vector<uint64_t> copyNs_, writeBackNs_, bounds_, ends_;
  std::vector<uint64_t> atHome_; // by unit: when it has been written back
};

} // namespace

size_t longestPrefix(absl::Span<const CutUnit> units) {
  size_t count = 0;
  while (count < units.size() && units[count].freeAfter < 0)
    ++count;
  return count;
}

uint64_t iterationNs(const CutProblem &problem, size_t bucket, const Cut &cut) {
  return Planner(problem).play(bucket, cut);
}

Cut planCut(const CutProblem &problem) {
  Planner planner(problem);
  size_t longest = longestPrefix(problem.units);
  Cut best;
  std::optional<Score> bestScore;
  auto attempt = [&](const Cut &cut) {
    Score score = planner.score(cut);
    bool shorter = cut.units < best.units || (cut.units == best.units && cut.bytes < best.bytes);
    if (!bestScore || score < *bestScore || (!(*bestScore < score) && shorter)) {
      bestScore = score;
      best = cut;
    }
    return score;
  };
  for (size_t units = 0; units <= longest; ++units)
    attempt({units, 0});
  // Then inside the units beside the best whole number. The time is piecewise linear in the position, so a grid that
  // narrows down around its best point finds the cut to a fraction of a permille of a unit.
  size_t whole = best.units;
  for (size_t unit = whole ? whole - 1 : 0; unit <= whole && unit < longest; ++unit) {
    if (!problem.units[unit].divides)
      continue;
    uint64_t low = 0, high = problem.units[unit].bytes;
    for (int round = 0; round < kNarrowings && high - low > problem.alignment; ++round) {
      uint64_t spacing = std::max(problem.alignment, (high - low) / kGrid / problem.alignment * problem.alignment);
      Cut local{unit, low};
      std::optional<Score> localScore;
      for (uint64_t bytes = low; bytes < high; bytes += spacing) {
        Score score = attempt({unit, bytes});
        if (!localScore || score < *localScore)
          localScore = score, local.bytes = bytes;
      }
      low = local.bytes > spacing ? local.bytes - spacing : 0;
      high = std::min(problem.units[unit].bytes, local.bytes + spacing);
    }
  }
  return best;
}

} // namespace headrace::algorithms
