// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/PackRanges.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace headrace::algorithms {
namespace {

constexpr int kImprovements = 8;

uint64_t roundUp(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }

class Packer {
public:
  Packer(absl::Span<const LiveRange> items, absl::Span<const TakenRange> taken, uint64_t alignment)
      : items_(items), alignment_(alignment) {
    // Whom each item lives together with, items and taken ranges alike, found once: most lives are short, so these
    // lists are, too. In the order of births, whoever is born before one's end and not before one's birth is together
    // with one.
    const size_t all = items.size() + taken.size();
    const auto first = [&](size_t i) { return i < items.size() ? items[i].first : taken[i - items.size()].first; };
    const auto last = [&](size_t i) { return i < items.size() ? items[i].last : taken[i - items.size()].last; };
    std::vector<uint32_t> births(all);
    std::iota(births.begin(), births.end(), 0);
    std::stable_sort(births.begin(), births.end(), [&](uint32_t a, uint32_t b) { return first(a) < first(b); });
    neighbours_.resize(items.size());
    taken_.resize(items.size());
    const auto meet = [&](uint32_t one, uint32_t other) {
      if (one >= items.size())
        return;
      if (other < items.size())
        neighbours_[one].push_back(other);
      else if (const TakenRange &range = taken[other - items.size()]; range.bytes)
        taken_[one].push_back({range.address, range.address + range.bytes});
    };
    for (size_t i = 0; i < all; ++i)
      for (size_t j = i + 1; j < all && first(births[j]) <= last(births[i]); ++j) {
        meet(births[i], births[j]);
        meet(births[j], births[i]);
      }
  }

  // Each item in turn goes to the lowest gap that it fits in.
  Packing place(absl::Span<const uint32_t> order) const {
    Packing packing;
    packing.addresses.assign(items_.size(), 0);
    std::vector<uint8_t> placed(items_.size(), 0);
    std::vector<std::pair<uint64_t, uint64_t>> busy;
    for (uint32_t item : order) {
      busy = taken_[item];
      for (uint32_t other : neighbours_[item])
        if (placed[other])
          busy.push_back({packing.addresses[other], packing.addresses[other] + bytes(other)});
      std::sort(busy.begin(), busy.end());
      uint64_t address = 0;
      for (const auto &[begin, end] : busy) {
        if (begin >= address && begin - address >= bytes(item))
          break;
        address = std::max(address, roundUp(end, alignment_));
      }
      packing.addresses[item] = address;
      placed[item] = 1;
      packing.peak = std::max(packing.peak, address + bytes(item));
    }
    return packing;
  }

  uint64_t bytes(uint32_t item) const { return roundUp(items_[item].bytes, alignment_); }
  int64_t length(uint32_t item) const { return items_[item].last - items_[item].first + 1; }

private:
  absl::Span<const LiveRange> items_;
  uint64_t alignment_;
  std::vector<std::vector<uint32_t>> neighbours_;
  std::vector<std::vector<std::pair<uint64_t, uint64_t>>> taken_;
};

} // namespace

uint64_t largestLiveSum(absl::Span<const LiveRange> items, uint64_t alignment) {
  // A sweep over the steps where something begins or has ended; at one step, ends come first.
  std::vector<std::pair<int64_t, int64_t>> changes;
  for (const LiveRange &item : items) {
    int64_t bytes = static_cast<int64_t>(roundUp(item.bytes, alignment));
    changes.push_back({item.first, bytes});
    changes.push_back({item.last + 1, -bytes});
  }
  std::sort(changes.begin(), changes.end());
  int64_t live = 0, largest = 0;
  for (const auto &[step, change] : changes)
    largest = std::max(largest, live += change);
  return static_cast<uint64_t>(largest);
}

Packing packRanges(absl::Span<const LiveRange> items, absl::Span<const TakenRange> taken, uint64_t enough,
                   uint64_t alignment) {
  Packer packer(items, taken, alignment);
  std::vector<uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  const uint64_t bound = std::max(enough, largestLiveSum(items, alignment));

  Packing best;
  bool have = false;
  auto attempt = [&](const std::vector<uint32_t> &candidate) {
    Packing packing = packer.place(candidate);
    if (!have || packing.peak < best.peak)
      best = std::move(packing), have = true, order = candidate;
    return best.peak <= bound;
  };
  auto sorted = [&](auto key) {
    std::vector<uint32_t> candidate(items.size());
    std::iota(candidate.begin(), candidate.end(), 0);
    std::stable_sort(candidate.begin(), candidate.end(), [&](uint32_t a, uint32_t b) { return key(a) > key(b); });
    return candidate;
  };
  // Long lives first keeps what is always there out of the way of what comes and goes; large items first is the classic
  // rule; area (life x bytes) is between the two; the order of birth suits chains.
  if (attempt(sorted([&](uint32_t i) { return std::pair(packer.length(i), packer.bytes(i)); })) ||
      attempt(sorted([&](uint32_t i) { return std::pair<uint64_t, int64_t>(packer.bytes(i), packer.length(i)); })) ||
      attempt(sorted(
          [&](uint32_t i) { return static_cast<double>(packer.bytes(i)) * static_cast<double>(packer.length(i)); })) ||
      attempt(sorted([&](uint32_t i) { return std::pair<int64_t, uint64_t>(-items[i].first, packer.bytes(i)); })))
    return best;
  // What sticks out above the bound goes first in the next attempt.
  std::vector<uint32_t> candidate = order;
  Packing packing = best;
  for (int round = 0; round < kImprovements; ++round) {
    std::stable_partition(candidate.begin(), candidate.end(),
                          [&](uint32_t i) { return packing.addresses[i] + packer.bytes(i) > bound; });
    packing = packer.place(candidate);
    if (packing.peak < best.peak)
      best = packing;
    if (best.peak <= bound)
      break;
  }
  return best;
}

} // namespace headrace::algorithms
