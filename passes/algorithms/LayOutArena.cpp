// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/LayOutArena.h"

#include <algorithm>
#include <numeric>

namespace headrace::algorithms {
namespace {

// The search for where slots begin ends within so many permille of the arena.
constexpr uint64_t kBisectionEnd = 5;

// Transients of all iterations around slots that begin at `slotsBegin`, relative to the transients' base.
struct Attempt {
  std::vector<std::vector<uint64_t>> transients;
  uint64_t top = 0;
};

Attempt packAround(absl::Span<const ArenaIteration> iterations, absl::Span<const uint64_t> slotBytes,
                   absl::Span<const uint32_t> slotOrder, uint64_t slotsBegin) {
  Attempt attempt; // its top is at least the end of the slots, so packing need not do better than that
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
    Packing packing = packRanges(iteration.transients, taken, /*enough=*/attempt.top);
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

ArenaLayout layOutArena(absl::Span<const uint64_t> belowBytes, absl::Span<const ArenaIteration> iterations,
                        absl::Span<const uint64_t> slotBytes, absl::Span<const uint64_t> persistentBytes) {
  // When each slot is free for good, in any iteration.
  std::vector<int64_t> slotLast(slotBytes.size(), -1);
  for (const ArenaIteration &iteration : iterations)
    for (const SlotUse &use : iteration.slotUses)
      slotLast[use.slot] = std::max(slotLast[use.slot], use.last);
  std::vector<uint32_t> slotOrder(slotBytes.size());
  std::iota(slotOrder.begin(), slotOrder.end(), 0);
  std::stable_sort(slotOrder.begin(), slotOrder.end(),
                   [&](uint32_t a, uint32_t b) { return slotLast[a] < slotLast[b]; });

  const auto peak = [&](auto &&pick) {
    uint64_t peak = 0;
    for (const ArenaIteration &iteration : iterations)
      peak = std::max(peak, peakOf(iteration.transients, [&](const LiveRange &item) { return pick(iteration, item); }));
    return peak;
  };
  // Slots above all transients are always possible. Lower, transients flow around what of the slots is in use.
  uint64_t slotsBegin = peak([](const ArenaIteration &, const LiveRange &) { return true; });
  Attempt best = packAround(iterations, slotBytes, slotOrder, slotsBegin);
  const auto lower = [&](uint64_t begin) {
    if (begin >= slotsBegin)
      return false;
    Attempt attempt = packAround(iterations, slotBytes, slotOrder, begin);
    if (attempt.top >= best.top)
      return false;
    best = std::move(attempt);
    slotsBegin = begin;
    return true;
  };
  if (!slotBytes.empty()) {
    // Above only those that live while the lowest bytes of the lowest slot are in use; failing that, somewhere between.
    uint64_t low = peak([&](const ArenaIteration &iteration, const LiveRange &item) {
      return std::any_of(iteration.slotUses.begin(), iteration.slotUses.end(), [&](const SlotUse &use) {
        return use.slot == slotOrder.front() && use.offset == 0 && use.first <= item.last && item.first <= use.last;
      });
    });
    if (!lower(low))
      for (uint64_t high = slotsBegin; high > low + std::max<uint64_t>(512, best.top / 1000 * kBisectionEnd);) {
        const uint64_t middle = low + (high - low) / 2 / 256 * 256;
        (lower(middle) ? high : low) = middle;
      }
    // At the very bottom all transients are above or inside the slots.
    lower(0);
  }

  ArenaLayout layout;
  uint64_t base = 0; // of the transients
  for (uint64_t bytes : belowBytes) {
    layout.below.push_back(base);
    base += bytes;
  }
  layout.transients = std::move(best.transients);
  for (std::vector<uint64_t> &addresses : layout.transients)
    for (uint64_t &address : addresses)
      address += base;
  layout.slots.resize(slotBytes.size());
  uint64_t address = base + slotsBegin;
  for (uint32_t slot : slotOrder) {
    layout.slots[slot] = address;
    address += slotBytes[slot];
  }
  layout.top = base + best.top;
  for (uint64_t bytes : persistentBytes) {
    layout.persistent.push_back(layout.top);
    layout.top += bytes;
  }
  return layout;
}

} // namespace headrace::algorithms
