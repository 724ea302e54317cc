// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/LayOutArena.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>

namespace headrace::algorithms {
namespace {

// The search for where slots begin ends within so many permille of the arena.
constexpr uint64_t kBisectionEnd = 5;

// Transients of all iterations around slots that begin at `slotsBegin`, relative to the transients' base. Only some of
// them where the top would not be below the limit.
struct Attempt {
  std::vector<std::vector<uint64_t>> transients;
  uint64_t top = 0;
};

Attempt packAround(absl::Span<const ArenaIteration> iterations, absl::Span<const uint64_t> slotBytes,
                   absl::Span<const uint32_t> slotOrder, uint64_t slotsBegin, uint64_t limit) {
  Attempt attempt; // its top is at least the end of the slots, so packing need not do better than that
  attempt.top = slotsBegin;
  std::vector<uint64_t> begin(slotBytes.size());
  for (uint32_t slot : slotOrder) {
    begin[slot] = attempt.top;
    attempt.top += slotBytes[slot];
  }
  for (const ArenaIteration &iteration : iterations) {
    if (attempt.top >= limit)
      break;
    std::vector<TakenRange> taken;
    for (const SlotUse &use : iteration.slotUses)
      taken.push_back({begin[use.slot] + use.offset, use.bytes, use.first, use.last});
    Packing packing = packRanges(iteration.transients, taken, /*enough=*/attempt.top);
    attempt.top = std::max(attempt.top, packing.peak);
    attempt.transients.push_back(std::move(packing.addresses));
  }
  return attempt;
}

// Those of an iteration's transients that live while the lowest bytes of a slot are in use.
std::vector<LiveRange> besideLowest(const ArenaIteration &iteration, uint32_t slot) {
  std::vector<SlotUse> uses;
  for (const SlotUse &use : iteration.slotUses)
    if (use.slot == slot && use.offset == 0)
      uses.push_back(use);
  std::sort(uses.begin(), uses.end(), [](const SlotUse &a, const SlotUse &b) { return a.first < b.first; });
  for (size_t i = 1; i < uses.size(); ++i) // the latest end so far: uses may overlap
    uses[i].last = std::max(uses[i].last, uses[i - 1].last);
  std::vector<LiveRange> beside;
  for (const LiveRange &item : iteration.transients) {
    const auto behind = std::upper_bound(uses.begin(), uses.end(), item.last,
                                         [](int64_t last, const SlotUse &use) { return last < use.first; });
    if (behind != uses.begin() && std::prev(behind)->last >= item.first)
      beside.push_back(item);
  }
  return beside;
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

  // Slots above all transients are always possible. Lower, transients flow around what of the slots is in use.
  uint64_t slotsBegin = 0;
  for (const ArenaIteration &iteration : iterations)
    slotsBegin = std::max(slotsBegin, packRanges(iteration.transients).peak);
  Attempt best = packAround(iterations, slotBytes, slotOrder, slotsBegin, std::numeric_limits<uint64_t>::max());
  const auto lower = [&](uint64_t begin) {
    if (begin >= slotsBegin)
      return false;
    Attempt attempt = packAround(iterations, slotBytes, slotOrder, begin, best.top);
    if (attempt.top >= best.top)
      return false;
    best = std::move(attempt);
    slotsBegin = begin;
    return true;
  };
  if (!slotBytes.empty()) {
    // Above only those that live while the lowest bytes of the lowest slot are in use; failing that, somewhere between.
    uint64_t low = 0;
    for (const ArenaIteration &iteration : iterations)
      low = std::max(low, packRanges(besideLowest(iteration, slotOrder.front())).peak);
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
