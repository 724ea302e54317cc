// SPDX-License-Identifier: Apache-2.0
#include "compiler/search/MostFreed.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "compiler/search/BucketChoices.h"

namespace headrace::compiler {
namespace {

constexpr int kSearches = 4; // for one objective

bool anyMissed(const std::vector<uint64_t> &missed) {
  return std::any_of(missed.begin(), missed.end(), [](uint64_t ns) { return ns > 0; });
}

template <class Key> std::vector<size_t> sortedBy(std::vector<size_t> placements, Key &&key) {
  std::stable_sort(placements.begin(), placements.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return placements;
}

} // namespace

MostFreed::MostFreed(Choosable &from, std::vector<Objective> buckets, bool gaps, Opinion opinion)
    : from_(from), buckets_(std::move(buckets)), gaps_(gaps), opinion_(std::move(opinion)),
      decisive_(decisiveOf(buckets_)), among_(from.stated()) {
  std::iota(among_.begin(), among_.end(), size_t{0});
}

MostFreed MostFreed::withObjectives(std::vector<Objective> buckets) const {
  return {from_, std::move(buckets), gaps_, opinion_};
}

void MostFreed::add(size_t placement) {
  if (std::find(among_.begin(), among_.end(), placement) == among_.end())
    among_.push_back(placement);
}

std::vector<size_t> MostFreed::byFreed() const {
  return sortedBy(among_, [&](size_t of) { return -from_.freed(of); });
}
std::vector<size_t> MostFreed::byBytes() const {
  return sortedBy(among_, [&](size_t of) { return from_.heldBytes(of); });
}
std::vector<size_t> MostFreed::byCopies() const {
  return sortedBy(among_, [&](size_t of) { return from_.copiesNs(of); });
}

uint64_t MostFreed::ns(size_t placement, size_t bucket) {
  played_.insert(placement);
  return from_.ns(placement, bucket);
}

bool MostFreed::meets(size_t placement, size_t bucket, uint64_t deviceMemory) {
  if (from_.heldBytes(placement) > deviceMemory)
    return false;
  if (opinion_)
    return opinion_(placement, buckets_[bucket]) && from_.fits(placement, deviceMemory);
  const uint64_t limit = buckets_[bucket].limit();
  return from_.copiesNs(placement) <= limit && ns(placement, bucket) <= limit && from_.fits(placement, deviceMemory);
}

std::optional<size_t> MostFreed::searchWithin(size_t bucket, uint64_t sloNs, const std::function<bool(size_t)> &holds) {
  std::vector<uint64_t> asked(buckets_.size(), 0);
  asked[bucket] = sloNs;
  for (int tries = 0; tries < kSearches; ++tries) {
    const std::optional<size_t> found = from_.search(asked);
    if (!found || (holds && !holds(*found)))
      return std::nullopt;
    const uint64_t took = ns(*found, bucket);
    if (took <= sloNs)
      return found;
    if (took - sloNs >= asked[bucket])
      return std::nullopt;
    asked[bucket] -= took - sloNs;
  }
  return std::nullopt;
}

std::vector<std::optional<size_t>> MostFreed::forEach(uint64_t deviceMemory) {
  const auto each = [&](auto &&bucket) {
    for (size_t b = 0; b < buckets_.size(); ++b)
      if (buckets_[b].sloNs > 0)
        bucket(b);
  };
  each([&](size_t b) {
    (void)searchWithin(b, buckets_[b].sloNs, [&](size_t found) {
      add(found);
      return true;
    });
  });
  std::vector<std::optional<size_t>> of(buckets_.size());
  each([&](size_t b) { of[b] = forBucket(b, deviceMemory); });
  return of;
}

std::optional<size_t> MostFreed::forBucket(size_t bucket, uint64_t deviceMemory) {
  std::optional<size_t> best;
  for (const size_t placement : byFreed()) {
    if (best && from_.freed(placement) < from_.freed(*best))
      break;
    if (meets(placement, bucket, deviceMemory) && (!best || ns(placement, bucket) < ns(*best, bucket)))
      best = placement;
  }
  return best;
}

std::optional<size_t> MostFreed::firstThatFits(uint64_t deviceMemory) {
  const auto first =
      std::find_if(among_.begin(), among_.end(), [&](size_t placement) { return from_.fits(placement, deviceMemory); });
  return first == among_.end() ? std::nullopt : std::optional(*first);
}

// --- As few as the plan may have ---

size_t MostFreed::countOf(const std::vector<std::optional<size_t>> &of) {
  std::vector<size_t> used;
  for (const std::optional<size_t> &placement : of)
    if (placement && std::find(used.begin(), used.end(), *placement) == used.end())
      used.push_back(*placement);
  return used.size();
}

std::optional<size_t> MostFreed::mostFreedForAll(const std::vector<std::optional<size_t>> &of, uint64_t deviceMemory) {
  for (const size_t placement : byFreed()) {
    bool all = true;
    for (size_t b = 0; b < of.size() && all; ++b)
      all = !of[b] || meets(placement, b, deviceMemory);
    if (all)
      return placement;
  }
  return std::nullopt;
}

bool MostFreed::reduce(std::vector<std::optional<size_t>> &of, size_t most, uint64_t deviceMemory) {
  if (countOf(of) <= most)
    return true;
  const std::optional<size_t> common = mostFreedForAll(of, deviceMemory);
  if (most == 1 && common) {
    for (std::optional<size_t> &placement : of)
      placement = placement ? common : std::nullopt;
    return true;
  }
  while (countOf(of) > most) {
    std::vector<size_t> used;
    for (const std::optional<size_t> &placement : of)
      if (placement && std::find(used.begin(), used.end(), *placement) == used.end())
        used.push_back(*placement);
    std::vector<size_t> others = used;
    if (common)
      others.push_back(*common);
    std::optional<std::vector<std::optional<size_t>>> best;
    double leastLoss = 0;
    for (const size_t gone : used) {
      if (gone == of[decisive_] || gone == common)
        continue;
      std::vector<std::optional<size_t>> without = of;
      double loss = 0;
      bool held = true;
      for (size_t b = 0; b < of.size() && held; ++b) {
        if (of[b] != gone)
          continue;
        without[b].reset();
        for (const size_t other : others)
          if (other != gone && meets(other, b, deviceMemory) &&
              (!without[b] || from_.freed(other) > from_.freed(*without[b])))
            without[b] = other;
        held = without[b].has_value();
        if (held)
          loss += static_cast<double>(from_.freed(gone) - from_.freed(*without[b]));
      }
      if (held && (!best || loss < leastLoss)) {
        best = std::move(without);
        leastLoss = loss;
      }
    }
    if (!best)
      return false;
    of = *std::move(best);
  }
  return true;
}

// --- One for all buckets ---

std::vector<uint64_t> MostFreed::missedTogether(size_t placement) {
  std::vector<uint64_t> missed(buckets_.size(), 0);
  for (size_t b = 0; b < missed.size(); ++b) {
    const uint64_t waits = std::max(ns(placement, b), from_.gapNs(placement, b));
    missed[b] = waits - std::min(waits, buckets_[b].limit());
  }
  return missed;
}

bool MostFreed::meetsAll(size_t placement, uint64_t deviceMemory) {
  for (size_t b = 0; b < buckets_.size(); ++b)
    if (buckets_[b].sloNs > 0 && !meets(placement, b, deviceMemory))
      return false;
  return true;
}

bool MostFreed::holdsAll(size_t placement, uint64_t deviceMemory) {
  return meetsAll(placement, deviceMemory) && !anyMissed(missedTogether(placement));
}

std::optional<size_t> MostFreed::formThatHoldsAll(size_t placement, uint64_t deviceMemory) {
  if (holdsAll(placement, deviceMemory))
    return placement;
  const std::optional<size_t> one = meetsAll(placement, deviceMemory) ? from_.inOneCut(placement) : std::nullopt;
  if (one)
    add(*one);
  return one && holdsAll(*one, deviceMemory) ? one : std::nullopt;
}

void MostFreed::searchForAll() {
  if (!from_.searches())
    return;
  // By how much what is found where buckets may take so long misses their objectives; none if nothing is found.
  const auto missedWhere = [&](const std::vector<uint64_t> &asked) -> std::optional<std::vector<uint64_t>> {
    const std::optional<size_t> found = from_.search(asked);
    if (!found)
      return std::nullopt;
    add(*found);
    std::vector<uint64_t> missed = missedTogether(*found);
    if (const std::optional<size_t> one = from_.inOneCut(*found)) {
      add(*one);
      if (anyMissed(missed))
        missed = missedTogether(*one);
    }
    return missed;
  };
  std::vector<uint64_t> asked, tooMuch;
  for (const Objective &bucket : buckets_)
    asked.push_back(bucket.sloNs);
  bool held = false;
  for (int tries = 0; tries < kSearches && !held; ++tries) {
    const std::optional<std::vector<uint64_t>> missed = missedWhere(asked);
    if (!missed)
      return;
    held = !anyMissed(*missed);
    if (held)
      break;
    tooMuch = asked;
    for (size_t b = 0; b < asked.size(); ++b) {
      if ((*missed)[b] > 0 && asked[b] <= (*missed)[b])
        return;
      asked[b] -= (*missed)[b];
    }
  }
  // Between what was missed and what holds.
  for (int tries = 0; tries < kSearches && held && closely_ && !tooMuch.empty(); ++tries) {
    std::vector<uint64_t> middle(asked);
    for (size_t b = 0; b < asked.size(); ++b)
      middle[b] += (tooMuch[b] - asked[b]) / 2;
    const std::optional<std::vector<uint64_t>> missed = missedWhere(middle);
    (missed && !anyMissed(*missed) ? asked : tooMuch) = std::move(middle);
  }
}

std::optional<size_t> MostFreed::forAll(uint64_t deviceMemory) {
  searchForAll();
  std::optional<size_t> best;
  for (const size_t placement : byFreed()) {
    if (best && from_.freed(placement) < from_.freed(*best))
      break;
    const std::optional<size_t> held = formThatHoldsAll(placement, deviceMemory);
    if (held && (!best || ns(*held, decisive_) < ns(*best, decisive_)))
      best = held;
  }
  return best;
}

std::optional<uint64_t> MostFreed::leastBytesForAll() {
  searchForAll();
  std::optional<uint64_t> least;
  for (const size_t placement : byBytes()) {
    if (least && from_.heldBytes(placement) >= *least)
      break;
    if (const std::optional<size_t> held = formThatHoldsAll(placement, kAnyMemory))
      least = std::min(least.value_or(kAnyMemory), from_.bytes(*held));
  }
  return least;
}

} // namespace headrace::compiler
