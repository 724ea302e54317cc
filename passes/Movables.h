// SPDX-License-Identifier: Apache-2.0
//
// What InsertMovement has to bring to the device in one iteration, in which order, and where to: plain values that the
// planning of the wrap-around cut reads as well.
//
//   items    what a slot holds at a time: the weights of an offloaded layer, what the head reads, a cache's tail, or a
//            residual stream while a layer works on it
//   moved    in order of first use, which is the order of copying; a movable lies in its item's slot behind those of
//            its item that are used before it; in a ring (one slot for all) where algorithms::assignRing puts it
#pragma once

#include <cstdint>
#include <vector>

#include "ir/Headrace.h"
#include "mlir/Support/LLVM.h"
#include "passes/algorithms/AssignSlots.h"
#include "passes/algorithms/Residency.h"

namespace headrace::passes {

struct MovedBuffer {
  ir::OnDeviceOp use; // what a prefetch replaces
  ir::MovableKind kind = ir::MovableKind::Weight;
  std::string name;
  uint64_t bytes = 0;
  uint32_t item = 0;
  uint8_t miniBatch = 0; // of a cache, and of a residual stream: whose it is
  // By a copy: of a cache behind its first use, which appends to it; of a residual stream behind its last.
  bool writtenBack = false;
  bool made = false;       // the first use writes it whole: nothing is brought
  uint64_t slotOffset = 0; // multiple of 256
  // Compute steps, counted from 0 in program order.
  uint32_t firstUse = 0, lastUse = 0;

  bool resizable() const { return kind != ir::MovableKind::Weight; } // a launch may bring what is in use of it
  // May be there on entry, copied by the iteration before.
  bool mayBeCarried() const { return kind != ir::MovableKind::Residual && kind != ir::MovableKind::Act; }
};

struct MovedItem {
  int32_t layer = -1; // -1: the head
  uint32_t moved = 0; // how many movables
  // Compute steps of the item's layer (or of the head): [firstStep, lastStep].
  uint32_t firstStep = 0, lastStep = 0;
  ir::MovableKind kind = ir::MovableKind::Weight;
};

struct Movables {
  std::vector<mlir::Operation *> steps; // all compute steps
  uint32_t layersBegin = 0;             // the first step of the first layer
  std::vector<MovedBuffer> moved;
  std::vector<MovedItem> items;
  // Of items: those of weights first, then those of residual streams, of activations, then those of caches; where
  // places rotate these are the slots from `firstPlace` on, and which a tail lies in is not one.
  algorithms::SlotAssignment slots;
  uint32_t firstPlace = 0;

  uint32_t slotOf(const MovedBuffer &buffer) const { return slots.slotOf[buffer.item]; }
};

// The last version of what `brought` is the first of: a step that updates it in place makes the next one.
mlir::Value lastVersion(mlir::Value brought);

// How an iteration's class has tails written back.
algorithms::WriteBack writeBackOf(const algorithms::Residency &residency, ir::IterationClass iterationClass);

// For an iteration in the homes phase, brought as the residency says. Fails (with a diagnostic) on a residency that
// contradicts itself, on buffers that cannot be moved yet, and on a ring that is too small for one.
mlir::FailureOr<Movables> findMovables(ir::IterationOp iteration, const algorithms::Residency &residency);

// When the ranges of what is moved are free, by movable. `freeAfter`: until this step has ended an earlier one of the
// iteration holds the range, -1 where there is none; `tailFreeAfter`: this step is the last that reads the last one
// that holds it. `heldBefore`, `heldLast`: these two, by number; -1: none.
struct RangeTimes {
  std::vector<int64_t> freeAfter, tailFreeAfter;
  std::vector<int64_t> heldBefore, heldLast;
};
RangeTimes rangeTimes(const Movables &movables);

} // namespace headrace::passes
