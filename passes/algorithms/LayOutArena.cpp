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
  for (uint64_t bytes : slotBytes)
    attempt.top += bytes;
  for (const ArenaIteration &iteration : iterations) {
    std::vector<TakenRange> taken;
    uint64_t address = slotsBegin;
    for (uint32_t slot : slotOrder) {
      if (iteration.slotLast[slot] >= 0)
        taken.push_back({address, slotBytes[slot], 0, iteration.slotLast[slot]});
      address += slotBytes[slot];
    }
    Packing packing = packRanges(iteration.transients, taken);
    attempt.top = std::max(attempt.top, packing.peak);
    attempt.transients.push_back(std::move(packing.addresses));
  }
  return attempt;
}

} // namespace

ArenaLayout layOutArena(uint64_t below, absl::Span<const ArenaIteration> iterations, absl::Span<const uint64_t> slotBytes,
                        absl::Span<const uint64_t> persistentBytes) {
  // Slots in the order in which they are given up, by the first iteration; all iterations of a placement agree on it.
  std::vector<uint32_t> slotOrder(slotBytes.size());
  std::iota(slotOrder.begin(), slotOrder.end(), 0);
  if (!iterations.empty())
    std::stable_sort(slotOrder.begin(), slotOrder.end(), [&](uint32_t a, uint32_t b) {
      return iterations[0].slotLast[a] < iterations[0].slotLast[b];
    });

  // Slots above all transients; or as low as the transients allow that begin while all, or while some slots are in use,
  // so that later ones grow into the slots. Whichever ends lowest.
  const auto baseOf = [&](auto &&lastOf) {
    uint64_t base = 0;
    for (const ArenaIteration &iteration : iterations) {
      std::vector<LiveRange> early;
      for (const LiveRange &item : iteration.transients)
        if (item.first <= lastOf(iteration.slotLast))
          early.push_back(item);
      base = std::max(base, packRanges(early).peak);
    }
    return base;
  };
  uint64_t slotsBegin = baseOf([](const std::vector<int64_t> &) { return kToTheEnd; });
  Attempt best = packAround(iterations, slotBytes, slotOrder, slotsBegin);
  if (!slotBytes.empty())
    for (uint64_t base : {baseOf([](const std::vector<int64_t> &last) { return *std::max_element(last.begin(), last.end()); }),
                          baseOf([](const std::vector<int64_t> &last) { return *std::min_element(last.begin(), last.end()); })})
      if (base < slotsBegin) {
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
