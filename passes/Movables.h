// SPDX-License-Identifier: Apache-2.0
//
// What InsertMovement has to bring to the device in one iteration, in which order, and where to: plain values that the
// planning of the wrap-around cut reads as well.
//
//   items   what a slot holds at a time: an offloaded layer's units, or the head's
//   units   in order of first use, which is the order of copying; a unit lies in its item's slot behind the units of
//           the item that are used before it; in a ring (one slot for all) where algorithms::assignRing puts it
#pragma once

#include <cstdint>
#include <vector>

#include "ir/Headrace.h"
#include "mlir/Support/LLVM.h"
#include "passes/algorithms/AssignSlots.h"

namespace headrace::passes {

struct MovedBuffer {
  ir::OnDeviceOp use; // what a prefetch replaces
  uint64_t bytes = 0;
  uint32_t item = 0;
  uint64_t slotOffset = 0; // multiple of 256
  // Compute steps, counted from 0 in program order.
  uint32_t firstUse = 0, lastUse = 0;
};

struct MovedItem {
  int32_t layer = -1; // -1: the head
  uint32_t firstUnit = 0, units = 0;
  // Compute steps of the item's layer (or of the head): [firstStep, lastStep].
  uint32_t firstStep = 0, lastStep = 0;
};

struct Movables {
  std::vector<mlir::Operation *> steps; // all compute steps
  uint32_t layersBegin = 0;             // the first step of the first layer
  std::vector<MovedBuffer> units;
  std::vector<MovedItem> items;
  algorithms::SlotAssignment slots; // of items

  uint32_t slotOf(const MovedBuffer &unit) const { return slots.slotOf[unit.item]; }
};

// The slots asked for.
struct SlotChoice {
  int64_t slots = 0;     // layer-sized slots; 0: what the start rule asks for
  int64_t ringBytes = 0; // above 0: instead of them one ring of at most so many bytes (rule eager)
};

// For an iteration in the homes phase. Fails (with a diagnostic) on buffers that are no weights, on negative numbers,
// on a ring under the rule paper or beside a number of slots, and on a ring that is too small for a unit.
mlir::FailureOr<Movables> findMovables(ir::IterationOp iteration, const SlotChoice &choice);

// When the ranges of the units are free, by unit. `freeAfter`: until this step has ended an earlier unit of the
// iteration holds the range, -1 where there is none; `tailFreeAfter`: this step is the last that reads the last unit
// that holds it.
struct RangeTimes {
  std::vector<int64_t> freeAfter, tailFreeAfter;
};
RangeTimes rangeTimes(const Movables &offloaded);

} // namespace headrace::passes
