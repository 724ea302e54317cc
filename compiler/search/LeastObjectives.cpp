// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/LeastObjectives.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "compiler/search/BucketChoices.h"

namespace headrace::compiler {
namespace {

constexpr uint64_t kUnbounded = MostFreed::kAnyMemory;
constexpr double kSteps = 1e6; // a factor's decimals

uint64_t inSteps(double factor) { return static_cast<uint64_t>(std::ceil(factor * kSteps - 1e-7)); }

// Of one bucket, alone.
class OfBucket {
public:
  OfBucket(MostFreed &choice, size_t bucket, uint64_t deviceMemory)
      : choice_(choice), from_(choice.from()), bucket_(bucket), deviceMemory_(deviceMemory) {}

  struct Least {
    uint64_t ns = kUnbounded; // where nothing fits
    std::optional<size_t> placement;
  };
  Least least() {
    Least least;
    lowerByStated(/*copiesNs=*/1, least);
    lowerBySearch(least);
    const uint64_t searched = least.ns;
    lowerByStated(kUnbounded, least);
    if (least.ns < searched)
      lowerBySearch(least);
    return least;
  }

  // Whether it can be held within `ns`, by `known` or by the search.
  bool holds(uint64_t ns, std::optional<size_t> known) {
    if (ns < residentNs())
      return false;
    if (known && from_.ns(*known, bucket_) <= ns && from_.fits(*known, deviceMemory_)) // a goal that it decides has it
      return true;
    return from_.searches() && attempt(ns).fits.has_value();
  }

private:
  uint64_t residentNs() const { return choice_.buckets()[bucket_].residentNs; }

  // By the stated candidates, as far as their copies alone take less than `copiesNs`: placements that a search found
  // for the objective are not there when another is asked for.
  void lowerByStated(uint64_t copiesNs, Least &least) {
    uint64_t below = least.ns < kUnbounded ? least.ns + 1 : kUnbounded; // of equals one that was stated
    for (const size_t placement : choice_.byCopies()) {
      if (from_.copiesNs(placement) >= std::min(copiesNs, below) || below <= residentNs())
        break;
      if (placement >= from_.stated() || from_.heldBytes(placement) > deviceMemory_)
        continue;
      if (const uint64_t ns = from_.ns(placement, bucket_); ns < below && from_.fits(placement, deviceMemory_)) {
        below = ns;
        least = {ns, placement};
      }
    }
  }

  struct Tried {
    std::optional<size_t> fits; // that meets the objective
    int64_t shortNs = 0;        // about so much more time (less, where negative) would free what memory asks for
  };
  Tried attempt(uint64_t sloNs) {
    Tried tried;
    tried.fits = choice_.searchWithin(bucket_, sloNs, [&](size_t found) {
      const int64_t needed =
          static_cast<int64_t>(from_.needBytes(0)) - from_.freed(0) - static_cast<int64_t>(deviceMemory_);
      if (const uint64_t moved = from_.movedBytes(found); moved > 0)
        tried.shortNs = static_cast<int64_t>(static_cast<double>(needed - from_.freed(found)) *
                                             static_cast<double>(from_.copiesNs(found)) / static_cast<double>(moved));
      return from_.fits(found, deviceMemory_);
    });
    return tried;
  }

  // To an objective at which the search finds what fits, and at 1 ns less does not. Between one that misses and one
  // that holds the search says about how much it is short by; just below what takes its time exactly there is, mostly,
  // nothing else that fits.
  void lowerBySearch(Least &least) {
    if (!from_.searches() || least.ns <= residentNs())
      return;
    uint64_t misses = residentNs() - 1, holds = least.ns, takes = least.ns; // takes: what holds takes
    int64_t shortNs = 0;
    if (holds == kUnbounded) { // nothing else fits: is there anything at all?
      const Tried any = attempt(MostFreed::kLongestNs);
      if (!any.fits)
        return;
      least = {MostFreed::kLongestNs, any.fits};
      holds = MostFreed::kLongestNs;
      takes = from_.ns(*any.fits, bucket_);
      shortNs = any.shortNs;
    }
    uint64_t step = 1, spread = holds - misses;
    int tries = 0;    // since what is open was halved
    bool last = true; // whether the last one held
    while (holds - misses > 1) {
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
      const Tried tried = attempt(next);
      last = tried.fits.has_value();
      shortNs = tried.shortNs;
      ++tries;
      if (last) {
        holds = next;
        takes = std::min(next, from_.ns(*tried.fits, bucket_));
        least = {next, tried.fits};
      } else {
        misses = next;
      }
    }
  }

  MostFreed &choice_;
  Choosable &from_;
  const size_t bucket_;
  const uint64_t deviceMemory_;
};

LeastOfClass leastOfClass(MostFreed &choice, bool decode, bool byFactor, uint64_t deviceMemory) {
  LeastOfClass minimum;
  std::vector<size_t> buckets;
  bool missed = false;
  for (size_t b = 0; b < choice.buckets().size(); ++b)
    if (choice.buckets()[b].decode == decode && choice.buckets()[b].sloNs > 0) {
      buckets.push_back(b);
      missed = missed || !choice.forBucket(b, deviceMemory);
    }
  // The largest first: where it decides, it is enough to know of the others that they can be held in less.
  bool decides = false;
  for (auto at = buckets.rbegin(); at != buckets.rend() && missed; ++at) {
    const Objective &bucket = choice.buckets()[*at];
    OfBucket of(choice, *at, deviceMemory);
    const auto factorOf = [&](uint64_t ns) { return static_cast<double>(ns) / static_cast<double>(bucket.residentNs); };
    if (decides) {
      uint64_t ns = minimum.ns; // the least that would decide in place of what does
      if (byFactor) {
        ns = static_cast<uint64_t>(minimum.factor * static_cast<double>(bucket.residentNs));
        while (ns > 0 && factorOf(ns) >= minimum.factor)
          --ns;
        while (factorOf(ns) < minimum.factor)
          ++ns;
      }
      if (of.holds(ns - 1, minimum.placement))
        continue;
    }
    const OfBucket::Least least = of.least();
    if (!least.placement)
      continue;
    minimum.missed |= least.ns > bucket.limit();
    // Of equals the first.
    if (!decides || (byFactor ? factorOf(least.ns) >= minimum.factor : least.ns >= minimum.ns)) {
      decides = true;
      minimum.bucket = *at;
      minimum.placement = least.placement;
    }
    minimum.factor = std::max(minimum.factor, factorOf(least.ns));
    minimum.ns = std::max(minimum.ns, least.ns);
  }
  return minimum;
}

// Whether some placement serves all buckets where a goal asks for other times.
class Together {
public:
  Together(const MostFreed &choice, uint64_t deviceMemory) : choice_(choice), deviceMemory_(deviceMemory) {}

  std::optional<size_t> held(const model::Goal &goal) const {
    std::vector<Objective> buckets = choice_.buckets();
    for (Objective &bucket : buckets)
      bucket.sloNs = objectiveNs(goal, bucket.decode, bucket.residentNs);
    MostFreed other = choice_.withObjectives(std::move(buckets));
    other.roughly();
    return other.forAll(deviceMemory_);
  }

  struct Least {
    uint64_t value = 0;
    size_t placement = 0;
  };
  std::optional<Least> factor(const model::Goal &goal) const {
    return least(inSteps(*goal.sloFactor), 1'000'000'000'000, [&](uint64_t value) {
      model::Goal other = goal;
      other.sloFactor = static_cast<double>(value) / kSteps;
      return other;
    });
  }
  std::optional<Least> ns(const model::Goal &goal, std::optional<std::chrono::nanoseconds> model::Goal::*member) const {
    return least(static_cast<uint64_t>((goal.*member)->count()), MostFreed::kLongestNs, [&](uint64_t value) {
      model::Goal other = goal;
      other.*member = std::chrono::nanoseconds(value);
      return other;
    });
  }

private:
  // The least value of which `goalOf` makes a goal that is held, above one that is not, to within a ten-thousandth;
  // none up to `most`.
  template <class GoalOf> std::optional<Least> least(uint64_t misses, uint64_t most, GoalOf &&goalOf) const {
    uint64_t holds = misses;
    std::optional<size_t> placement;
    while (!placement) {
      if (holds >= most)
        return std::nullopt;
      holds = std::min(most, 2 * holds);
      placement = held(goalOf(holds));
    }
    while (holds - misses > std::max<uint64_t>(1, misses / 10'000)) {
      const uint64_t middle = misses + (holds - misses) / 2;
      if (const std::optional<size_t> found = held(goalOf(middle))) {
        holds = middle;
        placement = found;
      } else {
        misses = middle;
      }
    }
    return Least{holds, *placement};
  }

  const MostFreed &choice_;
  const uint64_t deviceMemory_;
};

// To what one instance that serves both can be held to.
void raiseForGaps(const MostFreed &choice, const model::Goal &asked, uint64_t deviceMemory, LeastByClass &minima) {
  if (!choice.gaps() || !(minima.decode.missed || minima.mixed.missed))
    return;
  // The goal that the minima stand for: what is not missed stays as it was asked for.
  model::Goal goal = asked;
  if (goal.sloFactor) {
    goal.sloFactor = static_cast<double>(inSteps(std::max(minima.decode.factor, minima.mixed.factor))) / kSteps;
  } else {
    if (minima.decode.missed)
      goal.tpot = std::chrono::nanoseconds(minima.decode.ns);
    if (minima.mixed.missed)
      goal.ttft = std::chrono::nanoseconds(minima.mixed.ns);
  }
  const Together together(choice, deviceMemory);
  if (together.held(goal))
    return;
  const auto least = goal.sloFactor ? together.factor(goal) : together.ns(goal, &model::Goal::tpot);
  if (!least)
    return;
  LeastOfClass &decode = minima.decode;
  for (size_t b = 0; b < choice.buckets().size(); ++b)
    if (choice.buckets()[b].decode && choice.buckets()[b].sloNs > 0)
      decode.bucket = b; // the largest
  decode.missed = true;
  decode.placement = least->placement;
  if (goal.sloFactor)
    decode.factor = static_cast<double>(least->value) / kSteps;
  else
    decode.ns = least->value;
}

} // namespace

LeastByClass leastByClass(MostFreed &choice, const model::Goal &goal, uint64_t deviceMemory) {
  LeastByClass minima;
  minima.decode = leastOfClass(choice, true, goal.sloFactor.has_value(), deviceMemory);
  minima.mixed = leastOfClass(choice, false, goal.sloFactor.has_value(), deviceMemory);
  raiseForGaps(choice, goal, deviceMemory, minima);
  return minima;
}

std::optional<uint64_t> leastBytes(MostFreed &choice) {
  if (choice.gaps())
    return choice.leastBytesForAll();
  Choosable &from = choice.from();
  uint64_t most = 0;
  for (size_t b = 0; b < choice.buckets().size(); ++b) {
    if (choice.buckets()[b].sloNs == 0)
      continue;
    uint64_t least = kUnbounded;
    for (const size_t placement : choice.byBytes()) {
      if (from.heldBytes(placement) >= least)
        break;
      if (choice.meets(placement, b, MostFreed::kAnyMemory))
        least = std::min(least, from.bytes(placement));
    }
    if (least == kUnbounded)
      return std::nullopt;
    most = std::max(most, least);
  }
  return most;
}

LeastOfAll leastOfAll(MostFreed &choice) {
  Choosable &from = choice.from();
  std::vector<uint64_t> longest(choice.buckets().size(), 0);
  longest[choice.decisive()] = MostFreed::kLongestNs;
  if (const std::optional<size_t> found = from.search(longest))
    choice.add(*found);
  LeastOfAll least;
  for (const size_t placement : choice.byBytes()) {
    if (from.heldBytes(placement) >= least.bytes)
      break;
    if (const uint64_t bytes = from.bytes(placement); bytes < least.bytes)
      least = {bytes, placement};
  }
  return least;
}

LeastTogether leastTogether(const MostFreed &choice, const model::Goal &goal, uint64_t deviceMemory) {
  const Together together(choice, deviceMemory);
  LeastTogether least;
  if (goal.sloFactor)
    if (const auto factor = together.factor(goal))
      least.factor = static_cast<double>(factor->value) / kSteps;
  for (const auto &[member, into] :
       {std::pair(&model::Goal::tpot, &least.tpot), std::pair(&model::Goal::ttft, &least.ttft)})
    if (goal.*member)
      if (const auto ns = together.ns(goal, member))
        *into = std::chrono::nanoseconds(ns->value);
  return least;
}

} // namespace headrace::compiler
