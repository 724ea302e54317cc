// SPDX-License-Identifier: Apache-2.0
//
// What of an iteration is brought to the device and given up again, in order of first use, and the slots that it goes
// through: what planners of movement work on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "passes/algorithms/AssignSlots.h"
#include "passes/algorithms/Residency.h"

namespace headrace::algorithms {

struct Moved {
  MovableKind kind = MovableKind::Weight;
  int32_t miniBatch = 0; // of a cache, of activations and of a residual stream: whose it is
  std::string name;
  uint64_t bytes = 0;
  uint32_t item = 0;
  // By a copy: of a cache behind its first use, which appends to it; of a residual stream behind its last.
  bool writtenBack = false;
  bool made = false;       // the first use writes it whole: nothing is brought
  uint64_t slotOffset = 0; // multiple of 256
  // Compute steps, counted from 0 in program order.
  uint32_t firstUse = 0, lastUse = 0;

  // A launch may bring what is in use of it.
  bool resizable() const { return traitsOf(kind).written != Written::Never; }
  bool mayBeCarried() const { return traitsOf(kind).carried; }
};

struct MovedItem {
  int32_t layer = -1; // -1: the head
  uint32_t moved = 0; // how many movables
  // Compute steps of the item's layer (or of the head): [firstStep, lastStep].
  uint32_t firstStep = 0, lastStep = 0;
  MovableKind kind = MovableKind::Weight;
};

struct Movables {
  uint32_t steps = 0;       // compute steps
  uint32_t layersBegin = 0; // the first step of the first layer
  std::vector<int64_t>
      awaitable; // by step: the last one up to it that makes something, for a copy to wait for; -1: none
  std::vector<Moved> moved;
  std::vector<MovedItem> items;
  // Of items, kind by kind in the order of kSlotOrder; where places cycle, those of caches are the slots from
  // `firstPlace` on, and which a tail lies in is not one.
  SlotAssignment slots;
  uint32_t firstPlace = 0;

  uint32_t slotOf(const Moved &of) const { return slots.slotOf[of.item]; }
};

// Compute steps of each layer, and of the head (-1): the first and the last.
using LayerSteps = std::map<int32_t, std::pair<uint32_t, uint32_t>>;
// Puts what is moved into items: a layer's weights into one, what is on its own each into its own. `layerOf`: by
// movable. None: good; else which of them is of a layer that computes nothing.
std::optional<size_t> assignItems(const std::vector<int32_t> &layerOf, const LayerSteps &stepsOf, Movables &movables);

// Gives items their slots, as the residency says. What is wrong, where a ring is too small for one, or a kind that
// moves has no slots; else empty.
std::string assignSlots(const Residency &residency, Movables &movables);

// When the ranges of what is moved are free, by movable. `freeAfter`: until this step has ended an earlier one of the
// iteration holds the range, -1 where there is none; `tailFreeAfter`: this step is the last that reads the last one
// that holds it. `heldBefore`, `heldLast`: these two, by number; -1: none.
struct RangeTimes {
  std::vector<int64_t> freeAfter, tailFreeAfter;
  std::vector<int64_t> heldBefore, heldLast;
};
RangeTimes rangeTimes(const Movables &movables);

} // namespace headrace::algorithms
