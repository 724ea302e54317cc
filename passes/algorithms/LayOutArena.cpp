// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/LayOutArena.h"

#include <algorithm>
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
      taken.push_back({begin[use.slot], use.bytes, use.first, use.last});
    Packing packing = packRanges(iteration.transients, taken);
    attempt.top = std::max(attempt.top, packing.peak);
    attempt.transients.push_back(std::move(packing.addresses));
  }
  return attempt;
}

// What the transients need that begin at step `last` or before.
uint64_t peakUntil(absl::Span<const LiveRange> transients, int64_t last) {
  std::vector<LiveRange> early;
  for (const LiveRange &item : transients)
    if (item.first <= last)
      early.push_back(item);
  return packRanges(early).peak;
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
  // so that later ones grow into the slots; or at the very bottom, with all transients around what is in use. The lowest
  // top wins.
  const auto baseUntil = [&](int64_t last) {
    uint64_t base = 0;
    for (const ArenaIteration &iteration : iterations)
      base = std::max(base, peakUntil(iteration.transients, last));
    return base;
  };
  const uint64_t all = baseUntil(kToTheEnd);
  std::vector<uint64_t> lower;
  if (!slotBytes.empty())
    lower = {baseUntil(*std::max_element(slotLast.begin(), slotLast.end())),
             baseUntil(*std::min_element(slotLast.begin(), slotLast.end())), 0};
  uint64_t slotsBegin = all;
  Attempt best = packAround(iterations, slotBytes, slotOrder, all);
  for (uint64_t base : lower)
    if (base < all) {
      Attempt shared = packAround(iterations, slotBytes, slotOrder, base);
      if (shared.top < best.top) {
        best = std::move(shared);
        slotsBegin = base;
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
