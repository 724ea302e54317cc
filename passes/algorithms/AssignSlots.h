// SPDX-License-Identifier: Apache-2.0
//
// Who takes turns in which slot.
//
// An item is what one slot holds at a time: an offloaded layer (its units together), or the offloaded head. Items stand
// in the order of their use within an iteration. A slot is as large as the largest of its items.
//
// Without wrap-around an iteration is a line: item k goes to slot k mod n. With wrap-around it is a circle, since the
// slots go on turning from one iteration to the next, and k mod n is wrong where the number of items is no multiple of
// n: with 5 items in 2 slots, item 4 and (next time round) item 0 are neighbours in the same slot. So the items are
// coloured as arcs on a circle:
//
//   items   0 1 2 3 4 | 0 1 2 3 4 | ...
//   slots   0 1 0 1 2 | 0 1 0 1 2 | ...      any 2 that follow each other differ, at the price of one slot more
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "passes/algorithms/Residency.h"

namespace headrace::algorithms {

struct SlotAssignment {
  std::vector<uint64_t> slotBytes; // by slot
  std::vector<uint32_t> slotOf;    // by item
};

// Item k to slot k mod count. count >= 1; no more slots than items are made.
SlotAssignment assignSlotsInLine(absl::Span<const uint64_t> itemBytes, int64_t count);

// Any `wanted` items that follow each other on the circle are in different slots, with as few slots as that takes:
// ceil(n / floor(n / wanted)) for n > wanted items (the chromatic number of the (wanted - 1)-th power of a cycle), one
// each for n <= wanted.
SlotAssignment assignSlotsInCircle(absl::Span<const uint64_t> itemBytes, int64_t wanted);

// As a residency says: its slots, or as many as its start asks for (eager 2; ahead as many items; paper 1, or 2 with
// `neighbours`: where a layer's copy must run while the layer before it, offloaded as well, computes).
int64_t slotsAskedFor(const Residency &residency, bool neighbours);
// In a line where nothing is there on entry by the start alone (paper, ahead 0), else in a circle.
SlotAssignment assignSlots(const Residency &residency, absl::Span<const uint64_t> itemBytes, bool neighbours);

} // namespace headrace::algorithms
