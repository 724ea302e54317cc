// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/LayOutArena.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace headrace::algorithms {
namespace {

// Transients of all iterations around slots that begin at `slotsBegin`, relative to the transients' base.
struct Attempt {
  std::vector<std::vector<uint64_t>> transients;
  uint64_t top = 0;
};

Attempt packAround(absl::Span<const ArenaIteration> iterations, absl::Span<const uint64_t> slotBytes,
                   absl::Span<const uint32_t> slotOrder, uint64_t slotsBegin) {
  Attempt attempt;
  attempt.top = slotsBegin;
  std::vector<uint64_t> begin(slotBytes.size());
  for (uint32_t slot : slotOrder) {
    begin[slot] = attempt.top;
    attempt.top += slotBytes[slot];
  }
  for (const ArenaIteration &iteration : iterations) {
    std::vector<TakenRange> taken;
    for (const SlotUse &use : iteration.slotUses)
      taken.push_back({begin[use.slot] + use.offset, use.bytes, use.first, use.last});
    Packing packing = packRanges(iteration.transients, taken);
    attempt.top = std::max(attempt.top, packing.peak);
    attempt.transients.push_back(std::move(packing.addresses));
  }
  return attempt;
}

// What the transients need that are picked.
template <typename Pick> uint64_t peakOf(absl::Span<const LiveRange> transients, Pick &&pick) {
  std::vector<LiveRange> some;
  for (const LiveRange &item : transients)
    if (pick(item))
      some.push_back(item);
  return packRanges(some).peak;
}

} // namespace

ArenaLayout layOutArena(uint64_t below, absl::Span<const ArenaIteration> iterations, absl::Span<const uint64_t> slotBytes,
                        absl::Span<const uint64_t> persistentBytes) {
  // When each slot is free for good, in any iteration.
  std::vector<int64_t> slotLast(slotBytes.size(), -1);
  for (const ArenaIteration &iteration : iterations)
    for (const SlotUse &use : iteration.slotUses)
      slotLast[use.slot] = std::max(slotLast[use.slot], use.last);
  std::vector<uint32_t> slotOrder(slotBytes.size());
  std::iota(slotOrder.begin(), slotOrder.end(), 0);
  std::stable_sort(slotOrder.begin(), slotOrder.end(),
                   [&](uint32_t a, uint32_t b) { return slotLast[a] < slotLast[b]; });

  // Where slots may begin: above all transients; or only above those that begin while all, or while some slots are in use,
  // so that later ones grow into the slots; or only above those that live while the lowest bytes of the lowest slot are in
  // use, so that others grow into these; or at the very bottom, with all transients around what is in use. The lowest top
  // wins.
  const auto base = [&](auto &&pick) {
    uint64_t base = 0;
    for (const ArenaIteration &iteration : iterations)
      base = std::max(base, peakOf(iteration.transients, [&](const LiveRange &item) { return pick(iteration, item); }));
    return base;
  };
  const uint64_t all = base([](const ArenaIteration &, const LiveRange &) { return true; });
  std::vector<uint64_t> lower;
  if (!slotBytes.empty()) {
    for (const int64_t last : {*std::max_element(slotLast.begin(), slotLast.end()),
                               *std::min_element(slotLast.begin(), slotLast.end())})
      lower.push_back(base([&](const ArenaIteration &, const LiveRange &item) { return item.first <= last; }));
    lower.push_back(base([&](const ArenaIteration &iteration, const LiveRange &item) {
      return std::any_of(iteration.slotUses.begin(), iteration.slotUses.end(), [&](const SlotUse &use) {
        return use.slot == slotOrder.front() && use.offset == 0 && use.first <= item.last && item.first <= use.last;
      });
    }));
    lower.push_back(0);
    std::sort(lower.begin(), lower.end(), std::greater<>());
    lower.erase(std::unique(lower.begin(), lower.end()), lower.end());
  }
  uint64_t slotsBegin = all;
  Attempt best = packAround(iterations, slotBytes, slotOrder, all);
  for (const uint64_t begin : lower)
    if (begin < all) {
      Attempt shared = packAround(iterations, slotBytes, slotOrder, begin);
      if (shared.top < best.top) {
        best = std::move(shared);
        slotsBegin = begin;
      }
    }

  ArenaLayout layout;
  layout.transients = std::move(best.transients);
  for (std::vector<uint64_t> &addresses : layout.transients)
    for (uint64_t &address : addresses)
      address += below;
  layout.slots.resize(slotBytes.size());
  uint64_t address = below + slotsBegin;
  for (uint32_t slot : slotOrder) {
    layout.slots[slot] = address;
    address += slotBytes[slot];
  }
  layout.top = below + best.top;
  for (uint64_t bytes : persistentBytes) {
    layout.persistent.push_back(layout.top);
    layout.top += bytes;
  }
  return layout;
}

} // namespace headrace::algorithms
