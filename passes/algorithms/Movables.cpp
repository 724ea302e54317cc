// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/Movables.h"

#include <algorithm>
#include <array>

#include "passes/algorithms/AssignRing.h"
#include "passes/algorithms/RangeMap.h"

namespace headrace::algorithms {
namespace {

constexpr uint64_t kSlotAlign = 256;
uint64_t alignUp(uint64_t bytes) { return (bytes + kSlotAlign - 1) / kSlotAlign * kSlotAlign; }

// Whether some layer's copy must run while its neighbour, offloaded as well, computes.
bool haveNeighbours(const std::vector<MovedItem> &items) {
  for (size_t i = 1; i < items.size(); ++i)
    if (items[i].firstStep == items[i - 1].lastStep + 1)
      return true; // only weights move under the rules that ask
  return false;
}

// All of a kind in one slot, one behind the other.
std::string layOutRing(uint64_t ringBytes, MovableKind kind, Movables &found, SlotAssignment &slots) {
  std::vector<uint64_t> bytes;
  for (const Moved &of : found.moved) {
    if (of.kind != kind)
      continue;
    if (alignUp(of.bytes) > ringBytes)
      return "'" + of.name + "' brings " + std::to_string(of.bytes) + " bytes, more than the ring of " +
             std::to_string(ringBytes);
    bytes.push_back(of.bytes);
  }
  const RingAssignment ring = *assignRingWithin(bytes, ringBytes);
  slots.slotBytes = {ring.bytes};
  size_t next = 0;
  for (Moved &of : found.moved)
    if (of.kind == kind)
      of.slotOffset = ring.offset[next++];
  return "";
}

} // namespace

std::optional<size_t> assignItems(const std::vector<int32_t> &layerOf, const LayerSteps &stepsOf, Movables &movables) {
  // By kind: the item of the layer, which others may stand among.
  std::array<std::optional<uint32_t>, kMovableKinds> ofLayer;
  for (size_t i = 0; i < movables.moved.size(); ++i) {
    Moved &of = movables.moved[i];
    std::optional<uint32_t> &shared = ofLayer[static_cast<size_t>(of.kind)];
    const bool onItsOwn = traitsOf(of.kind).onItsOwn;
    if (onItsOwn || !shared || movables.items[*shared].layer != layerOf[i]) {
      const auto steps = stepsOf.find(layerOf[i]);
      if (steps == stepsOf.end())
        return i;
      of.item = static_cast<uint32_t>(movables.items.size());
      movables.items.push_back({layerOf[i], 0, steps->second.first, steps->second.second, of.kind});
      if (!onItsOwn)
        shared = of.item;
    } else {
      of.item = *shared;
    }
    movables.items[of.item].moved++;
  }
  return std::nullopt;
}

std::string assignSlots(const Residency &residency, Movables &found) {
  std::vector<uint64_t> itemBytes(found.items.size(), 0);
  for (Moved &of : found.moved) {
    of.slotOffset = itemBytes[of.item];
    itemBytes[of.item] += alignUp(of.bytes);
  }
  found.slots.slotOf.assign(found.items.size(), 0);
  for (const MovableKind kind : kSlotOrder) {
    const MovableTraits &traits = traitsOf(kind);
    const auto first = static_cast<uint32_t>(found.slots.slotBytes.size());
    if (kind == MovableKind::Kv)
      found.firstPlace = first;
    std::vector<uint32_t> items;
    std::vector<uint64_t> bytes; // by item of the kind
    for (uint32_t item = 0; item < found.items.size(); ++item)
      if (found.items[item].kind == kind) {
        items.push_back(item);
        bytes.push_back(itemBytes[item]);
      }
    if (items.empty())
      continue;
    const Pool &pool = residency.pool(kind);
    SlotAssignment assigned;
    if (pool.how() == How::Ring) {
      if (std::string wrong = layOutRing(pool.ringBytes(), kind, found, assigned); !wrong.empty())
        return wrong;
      assigned.slotOf.assign(items.size(), 0);
    } else if (pool.how() == How::Places) {
      assigned = {
          std::vector<uint64_t>(static_cast<size_t>(pool.places()), *std::max_element(bytes.begin(), bytes.end())),
          std::vector<uint32_t>(items.size(), 0)};
    } else if (traits.turns == Turns::ByStart) {
      assigned = assignSlots(residency, bytes, haveNeighbours(found.items));
    } else if (const int64_t slots = residency.slotsOf(kind); slots == 0) {
      return "moves " + std::string(traits.plural) + ", and has no slots for them";
    } else {
      assigned = traits.turns == Turns::Circle ? assignSlotsInCircle(bytes, slots) : assignSlotsInLine(bytes, slots);
    }
    for (size_t i = 0; i < items.size(); ++i)
      found.slots.slotOf[items[i]] = first + assigned.slotOf[i];
    found.slots.slotBytes.insert(found.slots.slotBytes.end(), assigned.slotBytes.begin(), assigned.slotBytes.end());
  }
  return "";
}

RangeTimes rangeTimes(const Movables &movables) {
  struct Owner {
    int64_t lastUse = -1, number = -1;
  };
  RangeTimes times;
  std::vector<RangeMap<Owner>> owners(movables.slots.slotBytes.size());
  const auto latest = [&](const Moved &of) {
    Owner last;
    owners[movables.slotOf(of)].forEach(of.slotOffset, of.slotOffset + of.bytes,
                                        [&](uint64_t, uint64_t, const Owner &owner) {
                                          if (owner.lastUse > last.lastUse)
                                            last = owner;
                                        });
    return last;
  };
  for (size_t i = 0; i < movables.moved.size(); ++i) {
    const Moved &of = movables.moved[i];
    const Owner before = latest(of);
    times.freeAfter.push_back(before.lastUse);
    times.heldBefore.push_back(before.number);
    // Ranges of one owner may end at different steps; what counts is the last of all so far.
    const bool later = before.lastUse > of.lastUse;
    owners[movables.slotOf(of)].assign(of.slotOffset, of.slotOffset + of.bytes,
                                       later ? before : Owner{of.lastUse, static_cast<int64_t>(i)});
  }
  for (const Moved &of : movables.moved) {
    const Owner last = latest(of);
    times.tailFreeAfter.push_back(last.lastUse);
    times.heldLast.push_back(last.number);
  }
  return times;
}

} // namespace headrace::algorithms
