// SPDX-License-Identifier: Apache-2.0
#include "passes/algorithms/Movables.h"

#include <algorithm>

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

// All weights in one slot.
std::string layOutRing(uint64_t ringBytes, Movables &found) {
  std::vector<uint64_t> bytes;
  for (const Moved &of : found.moved) {
    if (of.kind != MovableKind::Weight)
      continue;
    if (alignUp(of.bytes) > ringBytes)
      return "'" + of.name + "' brings " + std::to_string(of.bytes) + " bytes, more than the ring of " +
             std::to_string(ringBytes);
    bytes.push_back(of.bytes);
  }
  const RingAssignment ring = *assignRingWithin(bytes, ringBytes);
  size_t weights = 0;
  for (Moved &of : found.moved)
    if (of.kind == MovableKind::Weight)
      of.slotOffset = ring.offset[weights++];
  if (weights > 0)
    found.slots = {{ring.bytes}, std::vector<uint32_t>(found.items.size(), 0)};
  return "";
}

} // namespace

std::optional<size_t> assignItems(const std::vector<int32_t> &layerOf, const LayerSteps &stepsOf, Movables &movables) {
  std::optional<uint32_t> weights; // the item of the layer's weights, which a tail may stand among
  for (size_t i = 0; i < movables.moved.size(); ++i) {
    Moved &of = movables.moved[i];
    const bool isWeight = of.kind == MovableKind::Weight;
    if (!isWeight || !weights || movables.items[*weights].layer != layerOf[i]) {
      const auto steps = stepsOf.find(layerOf[i]);
      if (steps == stepsOf.end())
        return i;
      of.item = static_cast<uint32_t>(movables.items.size());
      movables.items.push_back({layerOf[i], 0, steps->second.first, steps->second.second, of.kind});
      if (isWeight)
        weights = of.item;
    } else {
      of.item = *weights;
    }
    movables.items[of.item].moved++;
  }
  return std::nullopt;
}

// Slots of the weights' items, then those of residual streams, then those of the caches' tails.
std::string assignSlots(const Residency &residency, Movables &found) {
  std::vector<uint64_t> itemBytes(found.items.size(), 0);
  std::vector<uint32_t> weightItems, residualItems, actItems, tailItems;
  for (uint32_t i = 0; i < found.items.size(); ++i)
    (found.items[i].kind == MovableKind::Weight ? weightItems
     : found.items[i].kind == MovableKind::Kv   ? tailItems
     : found.items[i].kind == MovableKind::Act  ? actItems
                                                : residualItems)
        .push_back(i);
  for (Moved &of : found.moved) {
    of.slotOffset = itemBytes[of.item];
    itemBytes[of.item] += alignUp(of.bytes);
  }
  const auto pick = [&](const std::vector<uint32_t> &items) {
    std::vector<uint64_t> bytes;
    bytes.reserve(items.size());
    for (const uint32_t item : items)
      bytes.push_back(itemBytes[item]);
    return bytes;
  };
  if (const uint64_t ring = residency.weights().ringBytes(); ring > 0) {
    if (std::string wrong = layOutRing(ring, found); !wrong.empty())
      return wrong;
  } else {
    const SlotAssignment weights = assignSlots(residency, pick(weightItems), haveNeighbours(found.items));
    found.slots.slotBytes = weights.slotBytes;
    found.slots.slotOf.assign(found.items.size(), 0);
    for (size_t i = 0; i < weightItems.size(); ++i)
      found.slots.slotOf[weightItems[i]] = weights.slotOf[i];
  }
  const auto follow = [&](const std::vector<uint32_t> &items, const SlotAssignment &assigned) {
    const auto first = static_cast<uint32_t>(found.slots.slotBytes.size());
    found.slots.slotOf.resize(found.items.size(), 0);
    for (size_t i = 0; i < items.size(); ++i)
      found.slots.slotOf[items[i]] = first + assigned.slotOf[i];
    if (!items.empty())
      found.slots.slotBytes.insert(found.slots.slotBytes.end(), assigned.slotBytes.begin(), assigned.slotBytes.end());
  };
  // Nothing of a residual stream is there when the iteration begins.
  if (!residualItems.empty())
    follow(residualItems, assignSlotsInLine(pick(residualItems), residency.residuals().slots()));
  if (!actItems.empty()) // nor of activations
    follow(actItems, assignSlotsInLine(pick(actItems), kActSlots));
  found.firstPlace = static_cast<uint32_t>(found.slots.slotBytes.size());
  if (residency.rotates() && !tailItems.empty()) {
    uint64_t largest = 0;
    for (const uint32_t item : tailItems)
      largest = std::max(largest, itemBytes[item]);
    found.slots.slotBytes.resize(found.firstPlace + static_cast<size_t>(residency.kv().places()), largest);
    found.slots.slotOf.resize(found.items.size(), 0);
    for (const uint32_t item : tailItems)
      found.slots.slotOf[item] = found.firstPlace;
    return "";
  }
  follow(tailItems, assignSlotsInCircle(pick(tailItems), residency.slotsOfTails()));
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
