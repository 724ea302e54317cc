// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/AssignSlots.h"

#include <algorithm>

namespace headrace::algorithms {
namespace {

void put(SlotAssignment &assignment, uint64_t bytes, size_t slot) {
  if (assignment.slotBytes.size() <= slot)
    assignment.slotBytes.resize(slot + 1, 0);
  assignment.slotBytes[slot] = std::max(assignment.slotBytes[slot], bytes);
  assignment.slotOf.push_back(static_cast<uint32_t>(slot));
}

} // namespace

SlotAssignment assignSlotsInLine(absl::Span<const uint64_t> itemBytes, int64_t count) {
  SlotAssignment assignment;
  for (size_t item = 0; item < itemBytes.size(); ++item)
    put(assignment, itemBytes[item], item % static_cast<size_t>(count));
  return assignment;
}

SlotAssignment assignSlotsInCircle(absl::Span<const uint64_t> itemBytes, int64_t wanted) {
  size_t items = itemBytes.size();
  if (items <= static_cast<size_t>(wanted))
    return assignSlotsInLine(itemBytes, std::max<int64_t>(1, static_cast<int64_t>(items)));
  // The circle is cut into as many turns as fit with at least `wanted` items each; the first item of a turn goes to
  // slot 0, the next to slot 1, and so on. Two items in the same slot are then at least one turn's length apart. Turns
  // differ in length by at most one, the longer ones stand last: an odd-sized item at the end (the head) is then in the
  // slot with the fewest owners.
  size_t turns = items / static_cast<size_t>(wanted);
  size_t shortest = items / turns, longer = items % turns;
  SlotAssignment assignment;
  size_t item = 0;
  for (size_t turn = 0; turn < turns; ++turn) {
    size_t length = shortest + (turn >= turns - longer ? 1 : 0);
    for (size_t slot = 0; slot < length; ++slot)
      put(assignment, itemBytes[item++], slot);
  }
  return assignment;
}

int64_t slotsAskedFor(const Residency &residency, bool neighbours) {
  if (const int64_t slots = residency.weights().slots(); slots > 0)
    return slots;
  switch (residency.start.rule) {
  case StartRule::Paper:
    return neighbours ? 2 : 1;
  case StartRule::Eager:
    return 2;
  case StartRule::Ahead:
    break;
  }
  return std::max(1, residency.start.items);
}

SlotAssignment assignSlots(const Residency &residency, absl::Span<const uint64_t> itemBytes, bool neighbours) {
  const int64_t slots = slotsAskedFor(residency, neighbours);
  return residency.start == kPaper || residency.start == ahead(0) ? assignSlotsInLine(itemBytes, slots)
                                                                  : assignSlotsInCircle(itemBytes, slots);
}

} // namespace headrace::algorithms
