// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/Range.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

namespace headrace::compiler {
namespace {

class Spread {
public:
  Spread(MostFreed &choice, const RangeAsked &asked, size_t chosen, uint64_t deviceMemory)
      : choice_(choice), from_(choice.from()), asked_(asked), chosen_(chosen), deviceMemory_(deviceMemory),
        bucket_(choice.buckets()[choice.decisive()]) {}

  void run(std::vector<size_t> &placements) {
    std::sort(placements.begin(), placements.end());
    placements.erase(std::unique(placements.begin(), placements.end()), placements.end());
    const std::vector<size_t> ladder = byMemory();
    const auto isOpen = [&](size_t candidate) {
      return std::none_of(placements.begin(), placements.end(),
                          [&](size_t placed) { return from_.freed(placed) == from_.freed(candidate); });
    };
    // The end that moves least first: what a neighbour on the bus may ask for. One that has to offload something is
    // better found by the chain, nested with the others.
    const auto begin = [&](size_t candidate) {
      if (isOpen(candidate) && placements.size() < asked_.placements)
        placements.push_back(candidate);
    };
    const bool nothing = !ladder.empty() && from_.offloadsNothing(ladder.front());
    if (!ladder.empty() && (nothing || !from_.searches()))
      begin(ladder.front());
    std::vector<size_t> open;
    for (const size_t candidate : chain(placements.size())) {
      if (open.empty() && !nothing)
        begin(candidate);
      open.push_back(candidate);
    }
    std::erase_if(open, [&](size_t candidate) { return !isOpen(candidate); });
    if (open.empty()) // what is not nested takes more memory together than apart
      std::copy_if(ladder.begin(), ladder.end(), std::back_inserter(open), isOpen);
    // Then wherever the gap to what is there already is the widest.
    while (placements.size() < asked_.placements && !open.empty()) {
      const auto gap = [&](size_t candidate) {
        int64_t least = std::numeric_limits<int64_t>::max();
        for (const size_t placed : placements)
          least = std::min(least, std::abs(from_.freed(placed) - from_.freed(candidate)));
        return least;
      };
      const auto widest =
          std::max_element(open.begin(), open.end(), [&](size_t a, size_t b) { return gap(a) < gap(b); });
      placements.push_back(*widest);
      open.erase(widest);
    }
  }

private:
  bool meets(size_t placement) { return choice_.meets(placement, choice_.decisive(), deviceMemory_); }
  uint64_t ns(size_t placement) { return choice_.ns(placement, choice_.decisive()); }

  // One for each amount of memory, from the least that is freed: the fastest in the bucket that decides.
  std::vector<size_t> byMemory() {
    std::vector<size_t> ladder, ascending = choice_.byFreed();
    std::reverse(ascending.begin(), ascending.end());
    for (const size_t candidate : ascending) {
      if (from_.freed(candidate) < 0 || (!asked_.anyTime && from_.freed(candidate) > from_.freed(chosen_)) ||
          !from_.fits(candidate, deviceMemory_) || (!asked_.anyTime && !meets(candidate)))
        continue;
      if (ladder.empty() || from_.freed(ladder.back()) != from_.freed(candidate))
        ladder.push_back(candidate);
      else if (std::pair(ns(candidate), candidate) < std::pair(ns(ladder.back()), ladder.back()))
        ladder.back() = candidate; // of equals the earlier: it offloads less
    }
    return ladder;
  }

  // As long as a placement that moves so many bytes may take: others on the bus may ask for its time, so that each is
  // as fast as it can be, give or take little.
  uint64_t nsFor(uint64_t bytes) {
    constexpr uint64_t kSlackPercent = 3;
    const auto copiesNs =
        static_cast<uint64_t>(static_cast<double>(from_.copiesNs(chosen_)) * static_cast<double>(bytes) /
                              static_cast<double>(from_.movedBytes(chosen_)));
    const uint64_t ns = std::max(bucket_.residentNs, copiesNs);
    return std::min(bucket_.sloNs, ns + ns / 100 * kSlackPercent);
  }

  std::vector<size_t> chainOf(const std::vector<RangeStep> &steps) {
    // Placements that offload units of each other fit together where each fits alone: the homes of the larger set have
    // room in those of the smaller.
    return from_.chain(choice_.decisive(), steps, asked_.withinChosen ? std::optional(chosen_) : std::nullopt);
  }

  // Of placements on the way to the chosen one the one that moves the fewest bytes and fits, found by halves to a 64th
  // of them, and what it was found by; none: none but the chosen one does.
  std::optional<std::pair<size_t, RangeStep>> fewestMoved() {
    constexpr uint64_t kFinest = 1024, kShare = 64; // of all bytes, of those found
    const uint64_t most = from_.movedBytes(chosen_);
    uint64_t low = 0, high = most;
    std::optional<std::pair<size_t, RangeStep>> best;
    while (high - low > std::max(most / kFinest, high / kShare)) {
      const uint64_t middle = low + (high - low) / 2;
      bool fits = false;
      for (const uint64_t ns : {nsFor(middle), bucket_.sloNs}) {
        const RangeStep step{ns, middle};
        const std::vector<size_t> found = chainOf({step});
        if (found.empty())
          return std::nullopt;
        choice_.add(found.front());
        if (!meets(found.front()))
          continue;
        best = {found.front(), step};
        high = from_.movedBytes(found.front());
        fits = true;
        break;
      }
      if (!fits)
        low = middle;
    }
    return best;
  }

  // Nested placements up to the chosen one, evenly spread over the bytes that they move: from the fewest with which the
  // rest fits, which comes first. `placed`: of all those asked for so many are there.
  std::vector<size_t> chain(size_t placed) {
    std::vector<size_t> found;
    if (!from_.searches() || bucket_.sloNs <= bucket_.residentNs || placed >= asked_.placements)
      return found;
    std::vector<RangeStep> steps;
    uint64_t least = 0;
    std::optional<size_t> first;
    if (!from_.fits(0, deviceMemory_)) {
      const auto fewest = fewestMoved();
      if (!fewest)
        return found;
      first = fewest->first;
      steps.push_back(fewest->second);
      least = from_.movedBytes(*first);
      steps.back().mostBytes = least;
      steps.back().leastFreed = static_cast<uint64_t>(from_.freed(*first));
    }
    const uint64_t most = from_.movedBytes(chosen_);
    if (most <= least)
      return found;
    const size_t count = asked_.placements - placed;
    for (size_t i = 1; i <= count; ++i) {
      const uint64_t bytes = least + (most - least) / (count + 1) * i, ns = nsFor(bytes);
      steps.push_back({steps.empty() ? ns : std::max(ns, steps.front().sloNs), bytes});
    }
    const std::vector<size_t> chain = chainOf(steps);
    for (size_t i = 0; i < chain.size(); ++i) {
      size_t candidate = chain[i];
      choice_.add(candidate);
      if (i == 0 && first && !meets(candidate))
        candidate = *first;
      if (from_.freed(candidate) < from_.freed(chosen_) && meets(candidate))
        found.push_back(candidate);
    }
    return found;
  }

  MostFreed &choice_;
  Choosable &from_;
  const RangeAsked asked_;
  const size_t chosen_;
  const uint64_t deviceMemory_;
  const Objective &bucket_; // that decides
};

} // namespace

void spreadRange(MostFreed &choice, const RangeAsked &asked, size_t chosen, uint64_t deviceMemory,
                 std::vector<size_t> &placements) {
  Spread(choice, asked, chosen, deviceMemory).run(placements);
}

} // namespace headrace::compiler
